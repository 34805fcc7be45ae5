"""The checkers beyond the promises: each fails on a broken run and holds on a correct one."""

from dataclasses import replace

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.invariants.evidence import Evidence, Task
from tests.invariants.promises import SHOWN_VIOLATIONS
from tests.support.recorded_runs import AGAIN, CALL, DEAD, DONE, GOOD


def test_due_times_are_kept() -> None:
    """A call before its due time is reported, and one after it is not."""
    assert checker.calls_before_due(AGAIN, {("b/1", 2): 42.5})
    assert checker.calls_before_due(AGAIN, {("b/1", 2): 41.5}) == []


def test_lateness_is_that_of_the_first_call() -> None:
    """A task due at 40 and called at 42 is 2 s late; a task never called does not matter."""
    assert checker.lateness_s(AGAIN, {("b/1", 2): 40.0, ("b/9", 2): 40.0}) == {("b/1", 2): 2.0}


def test_a_second_call_of_one_attempt_is_found() -> None:
    """Two calls with one label are one too many; two attempts are not."""
    assert checker.calls_twice(replace(GOOD, calls=(CALL, CALL)))
    assert checker.calls_twice(AGAIN) == []


def test_attempts_that_an_outage_spent_are_found() -> None:
    """In a run with outages only, no attempt counts, and no task dies."""
    spared = replace(GOOD, tasks=(DONE,))

    assert checker.attempts_spent(replace(spared, tasks=(replace(DONE, attempt=1),)))
    assert checker.attempts_spent(replace(spared, tasks=(replace(DEAD, attempt=0),)))
    assert checker.attempts_spent(spared) == []


def test_wait_of_a_refusal_is_kept() -> None:
    """After a 429 that asks for 2 s, a call after 1 s is too early, a call after 3 s is not."""
    refused = replace(CALL, status=429)

    early = replace(GOOD, calls=(refused, replace(CALL, start_s=12.0)))
    right = replace(GOOD, calls=(refused, replace(CALL, start_s=14.0)))

    assert checker.calls_too_early(early, 429, 2.0)
    assert not checker.calls_too_early(right, 429, 2.0)


def test_many_violations_are_summed_up() -> None:
    """A broken run of a thousand tasks is reported in a few lines."""
    tasks = tuple(Task(number, f"b/{number}", Status.PENDING) for number in range(1000))

    violations = checker.not_ended_once(Evidence(frozenset(task.name for task in tasks), tasks))

    assert len(violations) == SHOWN_VIOLATIONS + 1
