"""Each invariant of the checker is shown to fail on a run that breaks it, and to hold on one that does not."""

from dataclasses import replace

import pytest

from schemas.task import Status
from tests.integration import checker
from tests.integration.evidence import Attempt, Call, Death, Evidence, Kill, Letter, Position, Task

DONE = Task(1, "b/1", Status.SUCCEEDED, results=1, settled_s=20.0)
DEATH = Death(0, "permanent", "BAD_REQUEST")
DEAD = Task(2, "b/2", Status.DEAD, attempt=1, raw_key=b"2", value=b"{}", death=DEATH)
LETTER = Letter(b"2", b"{}", task_id=2, death=DEATH)
FAILED = Attempt("b/2", 0, "dead", "BAD_REQUEST", 11.0)
CALL = Call("b/1", 10.0, 11.0, 200, start_utc_s=10.0)
GOOD = Evidence(
    loaded=frozenset({"b/1", "b/2"}),
    tasks=(DONE, DEAD),
    attempts=(FAILED,),
    positions=(Position("g.tasks", 0, 0, 2, 2), Position("g.tasks", 1, 0, 0, None)),
    letters=(LETTER, Letter(None, b"?", quarantine_id=7)),
    quarantined=(7,),
    calls=(CALL, Call("b/2", 10.0, 11.0, 400, start_utc_s=10.0)),
)
RETRIED = Attempt("b/1", 0, "retry", "SERVER", 11.0)
AGAIN = replace(
    GOOD,
    tasks=(replace(DONE, attempt=1, settled_s=60.0), DEAD),
    attempts=(FAILED, RETRIED),
    calls=(replace(CALL, status=500), replace(CALL, start_s=42.0, end_s=43.0, start_utc_s=42.0, label=2)),
)


def test_good_run_has_no_violation() -> None:
    """A run in which everything fits passes every check."""
    assert checker.violations(GOOD) == []


BROKEN = {
    "a lost task": (checker.not_ended_once, replace(GOOD, tasks=(DONE,))),
    "an invented task": (checker.not_ended_once, replace(GOOD, loaded=frozenset({"b/1"}))),
    "a second row": (checker.not_ended_once, replace(GOOD, tasks=(DONE, DONE, DEAD))),
    "an open task": (checker.not_ended_once, replace(GOOD, tasks=(replace(DONE, status=Status.PENDING), DEAD))),
    "a success without result": (checker.results_not_fitting, replace(GOOD, tasks=(replace(DONE, results=0),))),
    "a dead task with a result": (checker.results_not_fitting, replace(GOOD, tasks=(replace(DEAD, results=1),))),
    "a final task with an owner": (checker.results_not_fitting, replace(GOOD, tasks=(replace(DONE, owner=1),))),
    "an offset behind the end": (checker.offsets_behind, replace(GOOD, positions=(Position("g.tasks", 0, 0, 2, 1),))),
    "an offset that was never committed": (checker.offsets_behind, replace(GOOD, positions=(Position("g.tasks", 0, 0, 2, None),))),
    "an offset beyond the end": (checker.offsets_behind, replace(GOOD, positions=(Position("g.tasks", 0, 0, 2, 3),))),
    "an order that is left": (checker.orders_left, replace(GOOD, orders=1)),
    "a second call without a kill": (checker.repeats_unexplained, replace(GOOD, calls=(CALL, replace(CALL, start_s=12.0)))),
    "a second call that another agent's kill does not explain": (
        checker.repeats_unexplained,
        replace(GOOD, calls=(CALL, replace(CALL, start_s=12.0)), kills=(Kill(10.5, frozenset({"b/2"})),)),
    ),
    "a second call that an earlier kill does not explain": (
        checker.repeats_unexplained,
        replace(GOOD, calls=(CALL, replace(CALL, start_s=12.0)), kills=(Kill(9.0, frozenset({"b/1"})),)),
    ),
    "a call that was left though nobody who had it was killed": (
        checker.repeats_unexplained,
        replace(GOOD, calls=(replace(CALL, status=0), replace(CALL, start_s=12.0)), kills=(Kill(10.5, frozenset()),)),
    ),
    "a success that no answer stands for": (checker.calls_after_the_end, replace(GOOD, calls=(replace(CALL, status=500),))),
    "a call of an unknown task": (checker.calls_after_the_end, replace(GOOD, calls=(CALL, replace(CALL, name="b/3")))),
    "a call after the result": (checker.calls_after_the_end, replace(GOOD, calls=(replace(CALL, start_utc_s=21.0),))),
    "two calls at once": (checker.calls_overlapping, replace(GOOD, calls=(CALL, replace(CALL, start_s=10.5)))),
    "two calls of which the first never ended": (
        checker.calls_overlapping,
        replace(GOOD, calls=(replace(CALL, end_s=None), replace(CALL, start_s=12))),
    ),
    "a death without row": (checker.letters_not_fitting, replace(GOOD, tasks=(replace(DEAD, death=None),))),
    "a death without letter": (checker.letters_not_fitting, replace(GOOD, letters=())),
    "a second letter": (checker.letters_not_fitting, replace(GOOD, letters=(LETTER, replace(LETTER, death=replace(DEATH, fence=1))))),
    "a letter of the same death with other words": (
        checker.letters_not_fitting,
        replace(GOOD, tasks=(replace(DEAD, replays=1),), letters=(LETTER, replace(LETTER, death=replace(DEATH, error_class="RATE")))),
    ),
    "a letter with another reason": (
        checker.letters_not_fitting,
        replace(GOOD, letters=(replace(LETTER, death=replace(DEATH, disposition="expired")),)),
    ),
    "a letter of no task": (checker.letters_not_fitting, replace(GOOD, letters=(LETTER, replace(LETTER, task_id=3)))),
    "a letter with other bytes": (checker.letters_not_fitting, replace(GOOD, letters=(replace(LETTER, value=b"{ }"),))),
    "a letter of a task that lives": (checker.letters_not_fitting, replace(GOOD, letters=(LETTER, Letter(None, b"", task_id=1)))),
    "an unknown disposition": (checker.deaths_unfounded, replace(GOOD, tasks=(replace(DEAD, death=replace(DEATH, disposition="bored")),))),
    "an exhausted task with attempts left": (
        checker.deaths_unfounded,
        replace(GOOD, tasks=(replace(DEAD, attempt=4, death=replace(DEATH, disposition="exhausted")),)),
    ),
    "a counted attempt that nobody saw": (checker.attempts_miscounted, replace(GOOD, attempts=())),
    "an attempt that was not counted": (checker.attempts_miscounted, replace(AGAIN, tasks=(DONE, DEAD))),
    "a rate limit that was counted": (checker.attempts_miscounted, replace(AGAIN, attempts=(FAILED, replace(RETRIED, error_class="RATE")))),
    "a retry before its tier": (checker.retries_early, replace(AGAIN, attempts=(FAILED, replace(RETRIED, settled_s=12.5)))),
    "a call before its due time": (lambda run: checker.calls_before_due(run, {("b/1", 2): 42.5}), AGAIN),
    "a second call of one attempt": (checker.calls_twice, replace(GOOD, calls=(CALL, CALL))),
    "a quarantined record without letter": (checker.quarantine_not_fitting, replace(GOOD, letters=(LETTER,))),
    "a letter without quarantined record": (checker.quarantine_not_fitting, replace(GOOD, quarantined=())),
    "an attempt that an outage spent": (checker.attempts_spent, replace(GOOD, tasks=(replace(DONE, attempt=1),))),
    "a death by an outage": (checker.attempts_spent, replace(GOOD, tasks=(replace(DEAD, attempt=0),))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_run_is_found(name: str) -> None:
    """The check of an invariant returns a line when the run breaks it."""
    check, run = BROKEN[name]

    assert check(run)


def test_kill_explains_a_second_call() -> None:
    """A call is repeated rightly when its task was in the claims of an agent that was killed between the two calls."""
    run = replace(GOOD, calls=(CALL, replace(CALL, start_s=12.0)), kills=(Kill(11.5, frozenset({"b/1"})),))

    assert checker.repeats_unexplained(run) == []


def test_failed_attempt_explains_a_second_call() -> None:
    """A call whose answer could not be used is repeated rightly after its failure was settled, and not before."""
    early = replace(AGAIN, attempts=(FAILED, replace(RETRIED, settled_s=50.0)))

    assert checker.violations(AGAIN) == []
    assert checker.repeats_unexplained(replace(AGAIN, calls=(CALL, *AGAIN.calls[1:]))) == []
    assert checker.repeats_unexplained(replace(early, calls=(CALL, *AGAIN.calls[1:])))


def test_uncounted_attempts_are_not_counted() -> None:
    """A snooze and a move leave the number of attempts as it is."""
    waits = tuple(replace(RETRIED, outcome=outcome, error_class="RATE") for outcome in ("snooze", "moved"))

    assert checker.attempts_miscounted(replace(GOOD, attempts=(FAILED, *waits))) == []


def test_copies_of_a_letter_are_one_letter() -> None:
    """The same letter twice is a copy; an earlier death's letter of a replayed task is its own."""
    replayed = replace(DEAD, replays=1, death=replace(DEATH, fence=1))

    assert checker.letters_not_fitting(replace(GOOD, letters=(LETTER, LETTER))) == []
    assert checker.letters_not_fitting(replace(GOOD, tasks=(replayed,), letters=(LETTER, replace(LETTER, death=replayed.death)))) == []


def test_lateness_is_that_of_the_first_call() -> None:
    """What was due at 40 and called at 42 is 2 s late; what was never called is not in question."""
    assert checker.lateness_s(AGAIN, {("b/1", 2): 40.0, ("b/9", 2): 40.0}) == {("b/1", 2): 2.0}


def test_wait_of_a_refusal_is_kept() -> None:
    """After a 429 that asks for 2 s a call 1 s later is too early, a call 3 s later is not."""
    refused = replace(CALL, status=429)

    early = replace(GOOD, calls=(refused, replace(CALL, start_s=12.0)))
    right = replace(GOOD, calls=(refused, replace(CALL, start_s=14.0)))

    assert checker.calls_too_early(early, 429, 2.0)
    assert not checker.calls_too_early(right, 429, 2.0)


def test_many_violations_are_summed_up() -> None:
    """A broken run of a thousand tasks is told in a few lines."""
    tasks = tuple(Task(number, f"b/{number}", Status.PENDING) for number in range(1000))

    found = checker.not_ended_once(Evidence(frozenset(task.name for task in tasks), tasks))

    assert len(found) == checker.SHOWN + 1
