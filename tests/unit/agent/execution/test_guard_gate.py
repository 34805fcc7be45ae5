"""Tasks of a raised guard: most are moved as their turn comes, one runs in its look."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import datetime

import pytest

from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.judge import Tier
from docllm.agent.ports import Row
from docllm.agent.ports.outcome import Failure, Moved
from docllm.producer.ledger.guards import as_json
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import ANY_ROUTE, Guard, GuardCause
from docllm.schemas.task.waits import WaitReason
from tests.support.ledger import new_row
from tests.support.slots import LookLedger

RAISED = Guard(
    id=1,
    batch_id=7,
    batch="tasks",
    type="document",
    route="default",
    cause=GuardCause.EXHAUSTED.value,
    reason="10 of the last 12 tasks were given up on",
    raised_at=datetime(2026, 1, 31),  # noqa: DTZ001 - as it is read from the ledger
    probe_due_in_s=60.0,
    look_at=datetime(2026, 1, 31),  # noqa: DTZ001 - as it is read from the ledger
    open_age_s=None,
)
LOOKING = replace(RAISED, look_left=1)


def row(task_id: int, batch_id: int = 7, task_type: str = "document") -> Row:
    return new_row(
        task_id=task_id,
        batch_id=batch_id,
        status=1,
        owner=1,
        type=task_type,
        task_key=b"t",
        batch="tasks",
    )


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_s(self) -> float:
        return self.s

    def utc_s(self) -> float:
        return self.s

    async def sleep(self, delay_s: float) -> None:
        self.s += delay_s


async def refuse(_guard_id: int, _task_id: int) -> bool:
    return False


def guards(
    *raised: Guard,
    join_look: Callable[[int, int], Awaitable[bool]] = refuse,
    time: Time | None = None,
    members: Collection[int] = (),
) -> GuardGate:
    gate = GuardGate(
        clock=time or Time(), longest_tier=Tier("1h", 3600.0), ledger=LookLedger(join_look)
    )
    gate.replace(raised, members)
    return gate


def test_times_of_guards_are_written_like_all_other_times() -> None:
    """Times of guards end with `Z`, so a script can compare them with other times as text.

    `export` and `show` write them so too.
    """
    assert as_json(RAISED)["raised_at"] == "2026-01-31T00:00:00Z"


def test_nothing_is_stopped_without_a_guard() -> None:
    """Without a guard nothing is stopped, once the ledger was read."""
    assert guards().guard_of(row(1), "default") is None
    assert guards().has_read_guards
    assert not GuardGate(
        clock=Time(), longest_tier=Tier("1h", 3600.0), ledger=LookLedger(refuse)
    ).has_read_guards


def test_a_guard_stops_its_own_key_and_no_other() -> None:
    """A guard stops only its own key: batch, type and route must all match."""
    gate = guards(RAISED)

    assert gate.guard_of(row(1), "default") is RAISED
    assert gate.guard_of(row(1, batch_id=8), "default") is None
    assert gate.guard_of(row(1, task_type="other"), "default") is None
    assert gate.guard_of(row(1), "other") is None


def test_a_guard_for_lost_agents_stops_every_route() -> None:
    """A guard for lost agents stops every route of its batch.

    A task that kills its process does so on any route.
    """
    wide = replace(RAISED, route=ANY_ROUTE)

    assert guards(wide).guard_of(row(1), "whatever") is wide
    assert guards(wide).guard_of(row(1, batch_id=8), "whatever") is None


def test_an_opened_guard_stops_no_task() -> None:
    """An opened guard stops nothing after the next look at the ledger."""
    gate = guards(RAISED)
    gate.replace([])

    assert gate.guard_of(row(1), "default") is None


def test_a_task_of_the_look_asks_the_ledger() -> None:
    """The task may have been called up, or come back from another agent that it has killed."""
    full = replace(RAISED, look_left=0)

    async def grant(_guard_id: int, task_id: int) -> bool:
        return task_id == 5

    granted, refused = guards(full, join_look=grant, members=[5]), guards(full, members=[5])

    assert granted.guard_of(row(5), "default") is full
    assert asyncio.run(granted.join_look_or_move(full, 5)) is None
    assert asyncio.run(refused.join_look_or_move(full, 5)) is not None
    assert asyncio.run(granted.join_look_or_move(full, 6)) is not None


def test_a_task_of_the_look_may_come_back_until_the_look_has_ended() -> None:
    """A snooze does not end its place in the look; the ledger does."""

    async def grant(_guard_id: int, _task_id: int) -> bool:
        return True

    gate = guards(LOOKING, join_look=grant)
    asyncio.run(gate.join_look_or_move(LOOKING, 5))
    assert gate.guard_of(row(5), "default") is None
    gate.replace([replace(RAISED, look_left=0)], [5])
    assert gate.guard_of(row(5), "default") is None

    gate.replace([replace(RAISED, look_left=0)], [6])

    assert gate.guard_of(row(5), "default") is not None


def test_a_stopped_task_is_moved_uncounted_and_names_the_guard() -> None:
    """The text has the guard's key and cause, not its reason, which quotes another task's error."""
    outcome = asyncio.run(guards(RAISED).join_look_or_move(RAISED, 9))

    assert isinstance(outcome, Moved)
    text = "the guard of batch tasks, type document, route default is raised: exhausted"
    assert (outcome.reason, outcome.key) == (WaitReason.GUARD, "7/document")
    assert outcome.failure == Failure(ErrorClass.GUARD, text)
    assert 3600.0 <= outcome.delay_s <= 1.2 * 3600.0


async def test_moves_are_limited_in_rate() -> None:
    """Moves have a rate limit: a thousand tasks at once take two seconds."""
    time = Time()
    gate = guards(RAISED, time=time)
    for number in range(1000):
        await gate.join_look_or_move(RAISED, number)

    assert 1.9 < time.s < 2.1


def test_tasks_in_hand_fill_the_free_places_of_a_look() -> None:
    """The gate asks the ledger for as many as have room; the others do not wait for the answer."""
    asked: list[tuple[int, int]] = []

    async def grant(guard_id: int, task_id: int) -> bool:
        asked.append((guard_id, task_id))
        return True

    wide = replace(RAISED, look_size=4, look_left=2)
    gate = guards(wide, join_look=grant)
    outcomes = [asyncio.run(gate.join_look_or_move(wide, task_id)) for task_id in (1, 2, 3)]

    assert [outcome is None for outcome in outcomes] == [True, True, False]
    assert asked == [(wide.id, 1), (wide.id, 2)]
    assert gate.guard_of(row(1), "default") is None


def test_a_look_that_other_agents_have_filled_is_not_asked_again() -> None:
    """Until the next look at the ledger."""
    asked: list[int] = []

    async def refuse(_guard_id: int, task_id: int) -> bool:
        asked.append(task_id)
        return False

    wide = replace(RAISED, look_size=4, look_left=3)
    gate = guards(wide, join_look=refuse)
    assert all(asyncio.run(gate.join_look_or_move(wide, task_id)) is not None for task_id in (1, 2))
    gate.replace([wide])
    asyncio.run(gate.join_look_or_move(wide, 3))

    assert asked == [1, 3]


def test_between_looks_no_task_asks() -> None:
    """A look begins once its route has answered; a route that fails for all gets a prompt only."""

    async def grant(_guard_id: int, _task_id: int) -> bool:
        raise AssertionError

    due = replace(RAISED, probe_due_in_s=-0.5)

    assert asyncio.run(guards(due, join_look=grant).join_look_or_move(due, 1)) is not None


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (replace(RAISED, probe_due_in_s=240.2), "next look in 240 s, with 1 task"),
        (replace(RAISED, look_size=8), "next look in 60 s, with up to 8 tasks"),
        (replace(RAISED, look_size=8, probe_due_in_s=-3.0), "next look now, with up to 8 tasks"),
        (replace(RAISED, look_size=8, look_left=0), "up to 8 tasks of it tried now"),
        (
            replace(RAISED, cause=GuardCause.NO_SUCCESS.value),
            "a prompt is sent to the route in 60 s",
        ),
    ],
)
def test_a_guard_shows_its_next_step(guard: Guard, text: str) -> None:
    """In `status`, in `guard list` and in the log."""
    assert guard.next_step_text == text
