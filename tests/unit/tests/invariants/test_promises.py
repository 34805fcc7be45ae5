"""Each promise is broken by a broken run, and kept by a correct one."""

from dataclasses import replace
from typing import Any

import pytest

from docllm.schemas.task.owner import agent_of, owner_of
from docllm.schemas.task.states import Status
from tests.invariants.calls import OK, retried_early
from tests.invariants.claims import before_its_time
from tests.invariants.counted import Sums
from tests.invariants.evidence import Call, Death, Evidence, Kill, Letter, Position
from tests.invariants.failures import calls_into_outages
from tests.invariants.happened import (
    Claim,
    Count,
    DeclaredLost,
    Guarded,
    Late,
    Ordered,
    Outage,
    Replayed,
    Stored,
)
from tests.invariants.promises import PROMISES, violations
from tests.support.recorded_runs import (
    AGAIN,
    AGENT,
    CALL,
    CLAIMED,
    CLOSE,
    DEAD,
    DEATH,
    DONE,
    FAILED,
    GOOD,
    LETTER,
    OWNER,
    RETRIED,
    move,
)

MOVES = tuple(CLOSE.moves or ())
LOADED, TAKEN, ENDED = MOVES
P, R, S, D = Status.PENDING, Status.PROCESSING, Status.SUCCEEDED, Status.DEAD


def closely(**changed: Any) -> Evidence:
    """Return the detailed run with something changed."""
    return replace(CLOSE, **changed)


def claimed_as(**changed: Any) -> Call:
    """Return the claimed call with something changed in its claim."""
    assert CLAIMED.claim is not None
    return replace(CLAIMED, claim=replace(CLAIMED.claim, **changed))


# Task 1 is claimed, answered and reset. Its agent loses the partition, claims it again and calls.
SECOND = owner_of(2, 1)  # the agent's next incarnation
SECOND_CALL = replace(
    CLAIMED, start_s=17.0, end_s=18.0, order=17, claim=Claim("agent", R, SECOND), good=True
)
CALLED_TWICE = closely(
    calls=(replace(CLAIMED, good=True), SECOND_CALL),
    moves=(
        LOADED,
        TAKEN,
        move(14, R, P, old=OWNER, owner=OWNER, losses=1, old_due_s=90.0),
        move(16, P, R, old=OWNER, owner=SECOND),
        move(19, R, S, old=SECOND, losses=-1, old_due_s=90.0),
    ),
    commits=(replace(CLOSE.commits[0], order=20),),
    agents={
        1: replace(CLOSE.agents[1], lost=13.5, gone=13.5),
        2: replace(CLOSE.agents[1], agent_id=2),
    },
    revoked_s={"agent": [15.0]},
)


@pytest.mark.parametrize("run", [GOOD, AGAIN, CLOSE, CALLED_TWICE])
def test_good_run_keeps_every_promise(run: Evidence) -> None:
    """A correct run breaks no promise."""
    assert violations(run) == []


EXHAUSTED = Count(
    order=20,
    at_s=20.0,
    batch_id=1,
    type="document",
    route="default",
    state=D,
    disposition="exhausted",
    delta=1,
)
WORKS = replace(EXHAUSTED, order=10, at_s=10.0, state=S, disposition="")
HELD = Guarded(batch_id=1, type="document", route="default", raised=15, opened=30)
REFUSED = replace(EXHAUSTED, disposition="permanent", outcome="BAD_REQUEST")
REFUSING = replace(HELD, cause="bad_request")
TIGHT = Outage("default", "SERVER", 0.0, 3.0)

BELOW_ZERO = {(1, ""): (-1, 0)}
COUNTED_ONCE = Sums("counts", written={(1, "gpu"): (2, 4)}, kept={})

BROKEN = {
    "a lost task": ("P1", replace(GOOD, tasks=(DONE,))),
    "an invented task": ("P1", replace(GOOD, loaded=frozenset({"b/1"}))),
    "a second row": ("P1", replace(GOOD, tasks=(DONE, DONE, DEAD))),
    "an open task": ("P1", replace(GOOD, tasks=(replace(DONE, status=P), DEAD))),
    "an order that is left": ("P1", replace(GOOD, orders=1)),
    "a success that is left": ("P1", closely(moves=(*MOVES, move(16, S, P)))),
    "a fence that falls": (
        "P1",
        closely(moves=(LOADED, TAKEN, replace(ENDED, old_fence=2, fence=1))),
    ),
    "a hook that was lost": ("P1", closely(hooked=frozenset({1}))),
    "an end without its line": ("P1", closely(lines=frozenset())),
    "a batch told before it was done": ("P1", closely(of_batch={1: True}, ends_told=[(0.0, 1)])),
    "a batch told of an end that it has not had": (
        "P1",
        closely(of_batch={1: True}, ends_told=[(1e9, 2)]),
    ),
    "a count that was lost": ("P1", replace(GOOD, sums=(COUNTED_ONCE,))),
    "a count that was doubled": (
        "P1",
        replace(GOOD, sums=(replace(COUNTED_ONCE, kept={(1, "gpu"): (4, 8)}),)),
    ),
    "a count that nobody wrote": (
        "P1",
        replace(GOOD, sums=(Sums("counts", {}, {(1, "gpu"): (1, 1)}),)),
    ),
    "more replays than deaths": (
        "P1",
        replace(GOOD, sums=(Sums("counts", BELOW_ZERO, BELOW_ZERO, balance=0),)),
    ),
    "a success without result": ("P2", replace(GOOD, tasks=(replace(DONE, results=0), DEAD))),
    "a dead task with a result": ("P2", replace(GOOD, tasks=(DONE, replace(DEAD, results=1)))),
    "a final task with an owner": ("P2", replace(GOOD, tasks=(replace(DONE, owner=1), DEAD))),
    "a claim that ends twice": ("P2", closely(moves=(*MOVES, replace(ENDED, order=16)))),
    "an end under a claim that was not": ("P2", closely(attempts=(replace(RETRIED, owner=77),))),
    "a result under a claim that was not": ("P2", closely(tasks=(replace(DONE, result_owner=77),))),
    "a claim that another one replaces": (
        "P2",
        closely(moves=(LOADED, TAKEN, move(13, R, R, old=OWNER, owner=9), ENDED)),
    ),
    "a reset that counts no loss": (
        "P2",
        closely(moves=(LOADED, TAKEN, move(13, R, P, old=OWNER, owner=OWNER), ENDED)),
    ),
    "a success that keeps losses": ("P2", closely(moves=(LOADED, replace(TAKEN, losses=1), ENDED))),
    "a success without a claim": ("P2", closely(moves=(LOADED, move(14, P, S)))),
    "a retry that keeps its fence": (
        "P2",
        closely(moves=(LOADED, TAKEN, move(14, R, Status.RETRYING, old=OWNER, attempts=1))),
    ),
    "an offset behind the end": (
        "P3",
        replace(GOOD, positions=(Position(topic="g.tasks", number=0, low=0, high=2, committed=1),)),
    ),
    "an offset that was never committed": (
        "P3",
        replace(
            GOOD, positions=(Position(topic="g.tasks", number=0, low=0, high=2, committed=None),)
        ),
    ),
    "an offset beyond the end": (
        "P3",
        replace(GOOD, positions=(Position(topic="g.tasks", number=0, low=0, high=2, committed=3),)),
    ),
    "an offset past open work": ("P3", closely(commits=(replace(CLOSE.commits[0], order=13),))),
    "an offset past a record that was lost later": (
        "P3",
        closely(
            commits=(replace(CLOSE.commits[0], order=13),),
            records=(replace(CLOSE.records[0], lost=13.5),),
        ),
    ),
    "an offset past a record whose stand-in was lost": (
        "P3",
        closely(
            commits=(replace(CLOSE.commits[0], order=13),),
            relief=True,
            records=(*CLOSE.records, Stored("g.tasks", 1, 0, 12, task_id=1, lost=12.5)),
        ),
    ),
    "an offset past a stranger's record": ("P3", closely(records=(Stored("g.tasks", 0, 0, 2),))),
    "an offset past a task that is not there": (
        "P3",
        closely(records=(Stored("g.tasks", 0, 0, 2, task_id=9),)),
    ),
    "a second call without a kill": (
        "P4",
        replace(GOOD, calls=(CALL, replace(CALL, start_s=12.0))),
    ),
    "a second call that another agent's kill does not explain": (
        "P4",
        replace(
            GOOD, calls=(CALL, replace(CALL, start_s=12.0)), kills=(Kill(10.5, frozenset({"b/2"})),)
        ),
    ),
    "a second call that an earlier kill does not explain": (
        "P4",
        replace(
            GOOD, calls=(CALL, replace(CALL, start_s=12.0)), kills=(Kill(7.0, frozenset({"b/1"})),)
        ),
    ),
    "a call that was left though nobody who had it was killed": (
        "P4",
        replace(
            GOOD,
            calls=(replace(CALL, status=0), replace(CALL, start_s=12.0)),
            kills=(Kill(10.5, frozenset()),),
        ),
    ),
    "a success that no answer stands for": (
        "P4",
        replace(GOOD, calls=(replace(CALL, status=500),)),
    ),
    "a call of an unknown task": ("P4", replace(GOOD, calls=(CALL, replace(CALL, name="b/3")))),
    "a call after the result": ("P4", replace(GOOD, calls=(replace(CALL, start_utc_s=21.0),))),
    "a call without a claim": (
        "P4",
        closely(calls=(claimed_as(status=P),)),
    ),
    "a call under another's claim": (
        "P4",
        closely(calls=(claimed_as(program="other"),)),
    ),
    "a call of an agent that was declared lost": (
        "P4",
        closely(agents={1: replace(CLOSE.agents[1], lost=11.5)}),
    ),
    "a call past the deadline": (
        "P4",
        closely(calls=(claimed_as(expired=True),)),
    ),
    "a call for a cancelled batch": (
        "P4",
        closely(calls=(claimed_as(cancelled=True),)),
    ),
    "two calls under one claim": ("P4", closely(calls=(CLAIMED, replace(CLAIMED, order=13)))),
    "a call on a route that is not allowed": (
        "P4",
        closely(
            tasks=(replace(DONE, value=b'{"routes_allowed":["a"]}'), *CLOSE.tasks[1:]),
            passed=(replace(CLAIMED, route="b"),),
        ),
    ),
    "an answer that is thrown away": (
        "P4",
        closely(moves=(LOADED, TAKEN, replace(ENDED, after=P))),
    ),
    "an answer that is bought again": ("P4", replace(CALLED_TWICE, revoked_s={})),
    "a counted attempt that nobody saw": ("P5", replace(GOOD, attempts=())),
    "an attempt that was not counted": ("P5", replace(AGAIN, tasks=(DONE, DEAD))),
    "a rate limit that was counted": (
        "P5",
        replace(AGAIN, attempts=(FAILED, replace(RETRIED, error_class="RATE"))),
    ),
    "a call storm into an outage": (
        "P5",
        replace(
            GOOD,
            outages=(TIGHT,),
            calls=tuple(Call("b/1", n / 10, route="default") for n in range(20)),
        ),
    ),
    "a death under a raised guard": (
        "P5",
        replace(GOOD, counts=(WORKS, EXHAUSTED), guards=(HELD,)),
    ),
    "more deaths than went in looks": (
        "P5",
        replace(
            GOOD, counts=(WORKS, replace(EXHAUSTED, delta=2)), guards=(replace(HELD, tried=(18,)),)
        ),
    ),
    "a death before its look": (
        "P5",
        replace(GOOD, counts=(WORKS, EXHAUSTED), guards=(replace(HELD, tried=(21,)),)),
    ),
    "a refusal under a guard for refusals": (
        "P5",
        replace(GOOD, counts=(REFUSED,), guards=(REFUSING,)),
    ),
    "a death on a route on which nothing succeeds": ("P5", replace(GOOD, counts=(EXHAUSTED,))),
    "a retry before its tier": (
        "P6",
        replace(AGAIN, attempts=(FAILED, replace(RETRIED, settled_s=12.5))),
    ),
    "a claim before it is due": (
        "P6",
        closely(moves=(LOADED, replace(TAKEN, old_due_s=11.5), ENDED)),
    ),
    "two calls at once": ("P7", replace(GOOD, calls=(CALL, replace(CALL, start_s=10.5)))),
    "two calls of which the first never ended": (
        "P7",
        replace(GOOD, calls=(replace(CALL, end_s=None), replace(CALL, start_s=12))),
    ),
    "a task taken from a live lease": (
        "P7",
        closely(
            moves=(
                LOADED,
                TAKEN,
                move(13, R, P, old=OWNER, owner=OWNER, old_due_s=90.0, losses=1),
                ENDED,
            )
        ),
    ),
    "a claim that leaks until its deadline": (
        "P7",
        closely(
            moves=(LOADED, TAKEN, move(95, R, P, old=OWNER, owner=OWNER, old_due_s=90.0, losses=1))
        ),
    ),
    "an agent is lost after a young heartbeat": (
        "P7",
        closely(declared_lost=(DeclaredLost(20, 20.0, 2, 4.0),)),
    ),
    "an agent that beats is lost": (
        "P7",
        closely(declared_lost=(DeclaredLost(20, 20.0, 1, 13.0),)),
    ),
    "a death without row": ("P8", replace(GOOD, tasks=(DONE, replace(DEAD, death=None)))),
    "a death without letter": ("P8", replace(GOOD, letters=GOOD.letters[1:])),
    "a second letter": (
        "P8",
        replace(GOOD, letters=(*GOOD.letters, replace(LETTER, death=replace(DEATH, fence=1)))),
    ),
    "a letter of the same death with other words": (
        "P8",
        replace(
            GOOD,
            tasks=(DONE, replace(DEAD, replays=1)),
            letters=(*GOOD.letters, replace(LETTER, death=replace(DEATH, error_class="RATE"))),
        ),
    ),
    "a letter with another reason": (
        "P8",
        replace(
            GOOD,
            letters=(replace(LETTER, death=replace(DEATH, disposition="expired")), GOOD.letters[1]),
        ),
    ),
    "a letter of no task": (
        "P8",
        replace(GOOD, letters=(*GOOD.letters, replace(LETTER, task_id=3))),
    ),
    "a letter with other bytes": (
        "P8",
        replace(GOOD, letters=(replace(LETTER, value=b"{ }"), GOOD.letters[1])),
    ),
    "a letter of a task that lives": (
        "P8",
        replace(GOOD, letters=(*GOOD.letters, Letter(None, b"", task_id=1))),
    ),
    "an earlier death without letter": (
        "P8",
        closely(moves=(LOADED, move(5, P, D), *MOVES[1:])),
    ),
    "an unknown disposition": (
        "P8",
        replace(GOOD, tasks=(DONE, replace(DEAD, death=replace(DEATH, disposition="bored")))),
    ),
    "an exhausted task with attempts left": (
        "P8",
        replace(
            GOOD,
            tasks=(DONE, replace(DEAD, attempt=4, death=replace(DEATH, disposition="exhausted"))),
        ),
    ),
    "a call for a task that is archived": ("P4", replace(GOOD, late=Late(called=("b/1",)))),
    "an archived task that changes": ("P4", replace(GOOD, late=Late(moved=(1,)))),
    "a late record that is quarantined": ("P4", replace(GOOD, late=Late(sent=2, quarantined=1))),
    "a purge that leaves a task": ("P4", replace(GOOD, late=Late(left=1))),
    "a replay that nobody asked for": (
        "P8",
        closely(moves=(LOADED, move(5, D, P, replays=1), TAKEN, ENDED)),
    ),
    "a replay that still waits": (
        "P8",
        closely(replayed=(Replayed(1, 1, 0, applied=False, waits=True),)),
    ),
    "a letter that came back and got a second one": ("P8", replace(GOOD, letters_again=(1,))),
    "a quarantined record without letter": ("P9", replace(GOOD, letters=(LETTER,))),
    "a letter without quarantined record": ("P9", replace(GOOD, quarantined=())),
    "a type above its slots": ("P5", replace(GOOD, type_slots={"scan": (1, 2)})),
    "a neighbour that pays for the end of a process": (
        "P9",
        replace(GOOD, blamed=(("b/1", True), ("b/2", False))),
    ),
    "a program that ended by an error": (
        "P9",
        replace(GOOD, failures=("agent-1 ended with KeyError",)),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_run_is_found(name: str) -> None:
    """A promise's function returns a line that begins with its name if the run breaks it."""
    promise, run = BROKEN[name]

    violations = PROMISES[promise](run)

    assert violations
    assert all(line.startswith(promise) for line in violations)


def test_every_promise_is_broken_by_something() -> None:
    """Every promise has a run that breaks it."""
    assert {promise for promise, _ in BROKEN.values()} == PROMISES.keys()


KEPT = {
    "a kill explains a second call": replace(
        GOOD,
        calls=(*GOOD.calls, replace(CALL, start_s=12.0, start_utc_s=12.0)),
        kills=(Kill(11.5, frozenset({"b/1"})),),
    ),
    "a busy server answers the first call after the death of its caller": replace(
        GOOD,
        calls=(*GOOD.calls, replace(CALL, start_s=12.0, start_utc_s=12.0)),
        kills=(Kill(9.0, frozenset({"b/1"})),),
    ),
    "a snooze and a move are not counted": replace(
        GOOD,
        attempts=(
            FAILED,
            *(
                replace(RETRIED, outcome=outcome, error_class="RATE")
                for outcome in ("snooze", "moved")
            ),
        ),
    ),
    "a copy of a letter is the same letter": replace(GOOD, letters=(LETTER, *GOOD.letters)),
    "a replayed task keeps its earlier letter": replace(
        GOOD,
        tasks=(
            DONE,
            replace(DEAD, replays=1, attempt=0, death=Death(1, "permanent", "BAD_REQUEST")),
        ),
        letters=(*GOOD.letters, replace(LETTER, death=Death(1, "permanent", "BAD_REQUEST"))),
    ),
    "a pointer has no value": replace(
        GOOD, letters=(replace(LETTER, value=None, pointer=True), GOOD.letters[1])
    ),
    "an order carries what a commit passes": closely(
        commits=(replace(CLOSE.commits[0], order=13),), ordered=(Ordered(1, 0, 12, 14),)
    ),
    "the quarantine has what a commit passes": closely(
        records=(Stored("g.tasks", 0, 0, 2, kept=14),)
    ),
    "a line of the inbox is a task": closely(
        records=(Stored("g.inbox", 0, 0, 0, known=1),),
        commits=(replace(CLOSE.commits[0], topic="g.inbox"),),
    ),
    "relief puts another record in its place": closely(
        commits=(replace(CLOSE.commits[0], order=13),),
        relief=True,
        records=(*CLOSE.records, Stored("g.tasks", 1, 0, 12, task_id=1)),
    ),
    "what the bus lost is passed": closely(
        commits=(replace(CLOSE.commits[0], order=13),),
        records=(replace(CLOSE.records[0], lost=12),),
    ),
    "relief's record is lost after the commit": closely(
        commits=(replace(CLOSE.commits[0], order=13),),
        relief=True,
        records=(*CLOSE.records, Stored("g.tasks", 1, 0, 12, task_id=1, lost=13.5)),
    ),
    "a program that stood still could not know better": closely(
        calls=(claimed_as(status=P),),
        agents={1: replace(CLOSE.agents[1], stalls=((11.2, 11.8),))},
    ),
    "an agent that is asked to leave gives back": closely(
        moves=(
            LOADED,
            TAKEN,
            replace(ENDED, after=P),
            move(14.2, P, R, owner=9),
            move(14.4, R, S, old=9),
        ),
        agents={1: replace(CLOSE.agents[1], asked_s=12.5)},
    ),
    "a lost agent's task is reset": closely(
        moves=(
            LOADED,
            TAKEN,
            move(13, R, P, old=OWNER, owner=OWNER, old_due_s=90.0, losses=1),
            replace(ENDED, before=P, losses=-1),
        ),
        agents={1: replace(CLOSE.agents[1], lost=12.5, gone=12.5, ended_s=10.0)},
    ),
    "a verdict over an agent that was killed": closely(
        agents={1: replace(CLOSE.agents[1], ended_s=15.0)},
        declared_lost=(DeclaredLost(30, 30.0, 1, 13.0),),
    ),
    "a death on a route that works": replace(GOOD, counts=(WORKS, EXHAUSTED)),
    "a death after a success by a clock that was ahead": replace(
        GOOD, counts=(replace(WORKS, at_s=30.0), EXHAUSTED)
    ),
    "a death in a look": replace(
        GOOD, counts=(WORKS, EXHAUSTED), guards=(replace(HELD, tried=(18,)),)
    ),
    "a refusal in a look": replace(
        GOOD, counts=(REFUSED,), guards=(replace(REFUSING, tried=(18,)),)
    ),
    "a refusal beside a success": replace(GOOD, counts=(WORKS, REFUSED), guards=(REFUSING,)),
    "a refusal in the transaction of a success": replace(
        GOOD, counts=(REFUSED, replace(WORKS, order=20.1, at_s=20.0)), guards=(REFUSING,)
    ),
    "a refusal under another guard": replace(GOOD, counts=(REFUSED,), guards=(HELD,)),
    "a death after its guard was opened": replace(
        GOOD, counts=(EXHAUSTED,), guards=(replace(HELD, opened=18),)
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_allowed_behaviour_is_no_violation(name: str) -> None:
    """What a promise allows does not count as a violation."""
    assert violations(KEPT[name]) == []


def test_a_clock_that_is_set_back_after_a_claim_makes_no_retry_early() -> None:
    """The first retry may run early if the database's clock was set back after the claim.

    The database's clock decided when it claimed, at 11; the first attempt had ended at -20.
    """
    retry = {
        "calls": (replace(CLAIMED, label=2, start_utc_s=-5.0),),
        "attempts": (replace(RETRIED, settled_s=-20.0),),
    }

    assert retried_early(closely(**retry)) == []
    assert (
        len(retried_early(closely(**retry, moves=(LOADED, replace(TAKEN, at_s=5.0), ENDED)))) == 1
    )


@pytest.mark.parametrize(("not_before_s", "early"), [(11.0, 0), (11.5, 1)])
def test_a_task_has_waited_for_its_time_once_it_was_claimed(
    not_before_s: float, early: int
) -> None:
    """It was claimed at 11 and released, and the clock set back: its next claim is not early."""
    (done,) = CLOSE.tasks
    again = replace(move(16, P, R, owner=SECOND), at_s=5.0)
    moves = (LOADED, TAKEN, move(14, R, P, old=OWNER), again, move(19, R, S, old=SECOND))

    run = closely(tasks=(replace(done, not_before_s=not_before_s),), moves=moves)

    assert len(before_its_time(run)) == early


@pytest.mark.parametrize(("claimed_s", "early"), [(45.0, 0), (30.0, 1)])
def test_only_the_next_attempt_waits_for_the_tier(claimed_s: float, early: int) -> None:
    """Only the next attempt waits for the tier.

    The attempt after it was snoozed, then the clock was set back, so it begins 30 s after an end
    that does not count.
    """
    second = replace(CLAIMED, start_s=20.0, order=20, label=2, start_utc_s=claimed_s, claim=None)
    third = replace(second, start_s=30.0, order=30, start_utc_s=16.0)
    waits = move(14, R, Status.RETRYING, old=OWNER)

    run = closely(
        calls=(second, third),
        attempts=(replace(RETRIED, owner=OWNER, settled_s=14.0),),
        moves=(LOADED, TAKEN, waits),
    )

    assert len(retried_early(run)) == early


@pytest.mark.parametrize(("moved_s", "early"), [(45.0, 0), (30.0, 1)])
def test_a_task_has_waited_once_a_claim_came_when_it_was_due(moved_s: float, early: int) -> None:
    """The claim moved it on, because its route had stopped; then the clock was set back."""
    second = replace(CLAIMED, start_s=40.0, order=40, label=2, start_utc_s=16.0, claim=None)
    moves = (
        LOADED,
        TAKEN,
        move(14, R, Status.RETRYING, old=OWNER),
        replace(move(20, Status.RETRYING, R, owner=OWNER + 1), at_s=moved_s),
        move(21, R, Status.RETRYING, old=OWNER + 1),
        replace(move(39, Status.RETRYING, R, owner=OWNER + 2), at_s=16.0),
    )
    attempts = (replace(RETRIED, owner=OWNER, settled_s=14.0),)

    assert len(retried_early(closely(calls=(second,), attempts=attempts, moves=moves))) == early


def test_a_replay_starts_a_new_count_of_attempts() -> None:
    """A replay starts a new count of attempts.

    A task that waited for its second attempt was cancelled and replayed, and the clock set back.
    Its second attempt belongs to another count.
    """
    anew = replace(CLAIMED, start_s=20.0, order=20, start_utc_s=8.0, claim=None)
    second = replace(anew, start_s=30.0, order=30, label=2, start_utc_s=17.0)
    attempts = (replace(RETRIED, owner=OWNER, settled_s=14.0),)
    moves = (LOADED, TAKEN, move(14, R, Status.RETRYING, old=OWNER))

    assert len(retried_early(closely(calls=(second,), attempts=attempts, moves=moves))) == 1
    assert retried_early(closely(calls=(anew, second), attempts=attempts, moves=moves)) == []


def test_an_agent_is_known_by_its_incarnation() -> None:
    """An owner number names the incarnation that claimed."""
    assert agent_of(OWNER) == agent_of(AGENT) == 1


def test_an_answer_of_before_an_outage_ends_a_run_of_failures() -> None:
    """An answer to a call from before an outage ends a run of failures.

    Calls in progress when an outage begins may still succeed. Each success lets the failures count
    anew, as those of single tasks.
    """
    failing = tuple(Call(f"b/{n}", n / 10, n / 10, 502, route="default") for n in range(20))
    earlier = tuple(Call(f"b/{n}", -1.0, n / 2, OK, route="default") for n in range(4))

    assert len(calls_into_outages(replace(GOOD, slots=2, outages=(TIGHT,), calls=failing))) == 1
    assert (
        calls_into_outages(replace(GOOD, slots=2, outages=(TIGHT,), calls=failing + earlier)) == []
    )
