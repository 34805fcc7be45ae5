"""A task that blocks a wide span, running or waiting for long, gets another record."""

import asyncio
from collections.abc import Sequence
from unittest.mock import MagicMock

from agent.entries import Entries
from agent.entry import Entry, State
from agent.ports import Order, Partition
from agent.relief import Relief
from schemas.envelope import Publication

WHERE = Partition("group.tasks", "id", 0, 1)
ORDER = Order(1, "group", "tasks", ((0, 5, 2),))


def relieved(state: State, answer: Order | None) -> tuple[Entry, list[object], list[Order]]:
    """Let relief look at one blocking entry; return it, what the ledger was asked, and what was ordered."""
    entries, asked, ordered = Entries(), list[object](), list[Order]()
    entry = Entry(WHERE, 3, 0, Publication("ledger", "group", "batch", 5, 2), None, None, "route")
    entries.arrive(entry, 0.0, redelivered=False)
    if state is State.HELD:
        entries.hold(entry, 1e6)
    entry.state = state

    class Ledger:
        async def relieve(self, task_id: int, fence: int, owner: int | None) -> Order | None:
            asked.append((task_id, fence, owner))
            return answer

    def note(orders: Sequence[Order]) -> None:
        ordered.extend(orders)

    partitions = MagicMock()
    partitions.blocking.return_value = [entry]
    asyncio.run(Relief(ledger=Ledger(), partitions=partitions, entries=entries, ordered=note).relieve())  # type: ignore[arg-type]
    assert partitions.finish.called is (answer is not None and bool(asked))
    return entry, asked, ordered


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
