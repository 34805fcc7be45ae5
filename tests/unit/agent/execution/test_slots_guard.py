"""Tasks with a raised guard are not run: they are moved, and one may go first."""

import asyncio
from dataclasses import replace

from docllm.agent.ports.outcome import Dead, Moved, Released, Succeeded
from tests.support.routes import GOOD, routes
from tests.support.slots import RAISED, SlotsHarness, claimed, ending, started


async def grant(_guard_id: int, _task_id: int) -> bool:
    return True


def test_stopped_tasks_are_moved_without_a_call() -> None:
    """Stopped tasks are moved without a call, and their route notices nothing.

    A task of another batch runs.
    """
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([RAISED])
    now_s = harness.clock.now_s()

    outcomes = started(harness, claimed(1, now_s), claimed(2, now_s), claimed(3, now_s, batch_id=2))

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Moved", "Moved", "Succeeded"]
    assert harness.counts.attempts == 1


def test_one_goes_first_in_a_look_of_one_task() -> None:
    """The first task runs as any task; the others are moved."""
    harness = SlotsHarness(routes(), ending(GOOD), grant)
    harness.guards.replace([replace(RAISED, look_left=1)])

    outcomes = started(harness, *(claimed(number, harness.clock.now_s()) for number in range(1, 5)))

    assert [type(outcome) for outcome in outcomes].count(Succeeded) == 1
    assert [type(outcome) for outcome in outcomes].count(Moved) == 3
    assert harness.counts.attempts == 1


def test_a_task_past_its_deadline_is_not_kept_by_a_guard() -> None:
    """A task past its deadline is dead without a call, even with a raised guard."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([RAISED])

    (outcome,) = started(harness, claimed(1, harness.clock.now_s(), expired=True))

    assert isinstance(outcome, Dead)
    assert outcome.disposition == "expired"


def test_a_suspect_is_stopped_too() -> None:
    """A guard makes no exception for a task over which agents were lost."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([RAISED])

    outcomes = started(harness, claimed(1, harness.clock.now_s(), lease_losses=2))

    assert [type(outcome) for outcome in outcomes] == [Moved]
    assert harness.counts.attempts == 0


def test_nothing_is_claimed_before_the_guards_are_known() -> None:
    """Nothing is claimed before the guards are known: a new agent might run stopped tasks."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.slots()
    assert harness.slots_admission.room() == 0

    harness.guards.replace([])

    assert harness.slots_admission.room() == 8


async def test_a_task_that_waits_for_its_turn_is_released_at_the_end() -> None:
    """A task that waits for its turn to be moved is released when the agent leaves."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([RAISED])
    slots = harness.slots()
    for number in range(1, 9):
        slots.start(claimed(number, harness.clock.now_s()))
    await asyncio.sleep(0)
    await slots.drain(0)

    assert {type(outcome) for outcome in harness.settler.outcomes} == {Released}
