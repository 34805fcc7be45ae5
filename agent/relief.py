"""Lets a wide span move on that one task blocks, which runs or waits for long: another record is ordered for it, its own finished with."""

from collections.abc import Callable, Sequence

from agent.entries import Entries
from agent.entry import Entry, State
from agent.partitions import Partitions
from agent.ports import Ledger, Order
from schemas import crash


class Relief:
    """Relieves the partitions of one agent. The order is written while the row is claimed, or waits, at the record's fence.

    A record that was not asked about, since it waits behind another of its task, may be anybody's, and is not taken for the task's.
    """

    def __init__(self, *, ledger: Ledger, partitions: Partitions, entries: Entries, ordered: Callable[[Sequence[Order]], None]) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._entries = entries
        self._ordered = ordered

    async def relieve(self) -> None:
        """Relieve every partition whose span is wide, almost finished, and blocked by a task that runs here or is not due yet."""
        for entry in self._partitions.blocking():
            if entry.state is State.RUNNING and entry.row is not None:
                order = await self._ledger.relieve(entry.task_id, entry.row.fence, entry.owner)
            elif entry.state is State.HELD and entry.paid is None and self._entries.known(entry):
                order = await self._ledger.relieve(entry.task_id, _fence(entry), None)
            else:
                continue
            if order is not None:
                self._finish(entry, order)

    def _finish(self, entry: Entry, order: Order) -> None:
        crash.reach("relief.ordered")
        self._partitions.finish(entry.partition, entry.offset)
        self._partitions.flush()
        if entry.state is State.HELD:
            self._entries.end(entry)
        self._ordered([order])


def _fence(entry: Entry) -> int:
    """Return the fence at which its task waits: a record may run ahead of a ledger that lost its last transactions."""
    fence = entry.publication.fence
    return fence if entry.row is None else min(fence, entry.row.fence)
