"""Lets a wide span move on that one task blocks, which runs or waits for long: another record is ordered for it, its own finished with."""

from collections.abc import Callable, Sequence

from agent.entries import Entries
from agent.entry import Entry, State
from agent.partitions import STUCK_SHARE, Partitions
from agent.ports import Ledger, Order
from schemas import crash

FINISHED_SHARE = 0.98  # of a wide span's records; of one whose first task waits for LONG_S, STUCK_SHARE is enough
LONG_S = 60.0


class Relief:
    """Relieves the partitions of one agent. The order is written while the row is claimed, or waits, at the record's fence.

    The ledger compares the record with its task: what only names a task is not relieved, as its value would be nowhere.
    """

    def __init__(self, *, ledger: Ledger, partitions: Partitions, entries: Entries, ordered: Callable[[Sequence[Order]], None]) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._entries = entries
        self._ordered = ordered

    async def relieve(self, now_s: float) -> None:
        """Relieve every partition whose span is wide, and blocked by a task that runs here or is not due yet."""
        late = [entry for entry in self._partitions.blocking(STUCK_SHARE) if self._entries.due_s(entry) > now_s + LONG_S]
        for entry in dict.fromkeys((*self._partitions.blocking(FINISHED_SHARE), *late)):
            await self._relieve(entry)

    async def _relieve(self, entry: Entry) -> None:
        if entry.state is State.RUNNING and entry.row is not None:
            fence, owner = entry.row.fence, entry.owner
        elif entry.state is State.HELD and entry.paid is None:
            fence, owner = _fence(entry), None
        else:
            return
        order = await self._ledger.relieve(entry.claimable(), fence, owner)
        if order is not None:
            self._finish(entry, order, fence)

    def _finish(self, entry: Entry, order: Order, fence: int) -> None:
        """Finish with a record, and with all copies of it: the one that is ordered stands for them too."""
        crash.reach("relief.ordered")
        for copy in self._entries.take_copies(entry, fence):
            self._partitions.finish(copy.partition, copy.offset)
            self._entries.end(copy)
        self._partitions.finish(entry.partition, entry.offset)
        self._partitions.flush()
        if entry.state is State.HELD:
            self._entries.end(entry)
        self._ordered([order])


def _fence(entry: Entry) -> int:
    """Return the fence at which its task waits: a record may run ahead of a ledger that lost its last transactions."""
    fence = entry.publication.fence
    return fence if entry.row is None else min(fence, entry.row.fence)
