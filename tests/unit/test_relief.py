"""A task that blocks a wide span, running or waiting for long, gets another record."""

import asyncio
from collections.abc import Sequence
from unittest.mock import MagicMock

import pytest

from agent.entries import Entries
from agent.entry import Entry, State
from agent.ports import Order, Partition, Row
from agent.relief import Relief
from schemas.envelope import Publication

WHERE = Partition("group.tasks", "id", 0, 1)
ORDER = Order(1, "group", "tasks", ((0, 5, 2),))


def record(offset: int, digest: bytes | None, fence: int = 2) -> Entry:
    return Entry(WHERE, offset, 0, Publication("ledger", "group", "batch", 5, fence), b"value", digest, "route")


def relieved(
    state: State, answer: Order | None, *, first: Entry | None = None, behind: Entry | None = None
) -> tuple[Entry, list[object], list[Order]]:
    """Let relief look at one blocking entry, or one behind it; return it, what was asked, and what was ordered."""
    entries, asked, ordered = Entries(), list[object](), list[Order]()
    entry = first or record(3, b"ours")
    entry.row = Row(5, 1, 3, 0, 2, 0, 5, 0, 0, 0.0, False, "document", b"k", "batch")  # noqa: FBT003 - a row as it is read
    entries.arrive(entry, 0.0, redelivered=False)
    if state is State.HELD:
        entries.hold(entry, 1e6)
    entry.state = state
    if behind is not None:
        entries.arrive(behind, 0.0, redelivered=False)
    blocking = behind or entry

    class Ledger:
        async def relieve(self, task_id: int, fence: int, owner: int | None) -> Order | None:
            asked.append((task_id, fence, owner))
            return answer

    def note(orders: Sequence[Order]) -> None:
        ordered.extend(orders)

    partitions = MagicMock()
    partitions.blocking.return_value = [blocking]
    relief = Relief(ledger=Ledger(), partitions=partitions, entries=entries, ordered=note)  # type: ignore[arg-type]
    asyncio.run(relief.relieve())
    assert partitions.finish.called is bool(ordered)
    return blocking, asked, ordered


@pytest.mark.parametrize("digest", [b"ours", None])
def test_a_copy_behind_a_task_that_runs_lets_the_others_pass(digest: bytes | None) -> None:
    """It is what the ledger has said of the first, or has no value of its own."""
    entry, asked, ordered = relieved(State.HELD, ORDER, behind=record(4, digest))

    assert (entry.state, asked, ordered) == (State.GONE, [(5, 2, None)], [ORDER])


def test_a_record_that_only_names_a_task_is_not_relieved() -> None:
    """The other record that is ordered would have the task's value, and what a stranger wrote would be nowhere."""
    entry, asked, ordered = relieved(State.RUNNING, ORDER, behind=record(4, b"theirs"))

    assert (entry.value, asked, ordered) == (b"value", [], [])


def test_a_record_that_runs_ahead_of_the_ledger_is_relieved_at_the_ledgers_fence() -> None:
    """A restored ledger may know a lower one."""
    entry = record(3, b"ours", fence=9)

    assert relieved(State.HELD, ORDER, first=entry)[1:] == ([(5, 2, None)], [ORDER])


def test_a_record_that_nobody_was_asked_about_is_left() -> None:
    """The first of its task has not been claimed yet; it will be in a moment."""
    first, second = record(3, b"ours"), record(4, b"theirs")
    entries = Entries()
    for one in (first, second):
        entries.arrive(one, 0.0, redelivered=False)

    assert [entries.known(first), entries.known(second)] == [None, None]


def test_a_task_that_waits_for_long_lets_the_others_pass() -> None:
    """A provider may ask for a day; the partition is read on, and the new record stands for the task."""
    entry, asked, ordered = relieved(State.HELD, ORDER)

    assert (entry.state, asked, ordered) == (State.GONE, [(5, 2, None)], [ORDER])


def test_a_task_that_somebody_else_has_is_left() -> None:
    """The ledger says that it does not wait."""
    entry, asked, ordered = relieved(State.HELD, None)

    assert (entry.state, asked, ordered) == (State.HELD, [(5, 2, None)], [])


def test_a_task_that_is_about_to_run_is_left() -> None:
    """It will block no longer in a moment, or run."""
    entry, asked, ordered = relieved(State.READY, ORDER)

    assert (entry.state, asked, ordered) == (State.READY, [], [])
