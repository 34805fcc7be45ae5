"""Head-of-line relief: unblocks a partition stuck behind one slow task.

It orders a replacement record for the task, which runs or waits for long, and finishes the original
record.
"""

from collections.abc import Callable, Sequence

from agent.inflight.delivery import Delivery, DeliveryState
from agent.inflight.partitions import STUCK_SHARE, Partitions
from agent.inflight.table import InFlightTable
from agent.ports import Ledger, Order
from schemas.runtime import crash

# The share of finished records in a wide span. If its first task waits longer than LONG_S,
# STUCK_SHARE is enough.
FINISHED_SHARE = 0.98
LONG_S = 60.0


class HeadOfLine:
    """Relieves the partitions of one agent.

    The order is written while the row is claimed, or waits, at the record's fence. The ledger
    compares the record with its task. A record that only names a task is not relieved, because its
    value would be lost.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        partitions: Partitions,
        entries: InFlightTable,
        ordered: Callable[[Sequence[Order]], None],
    ) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._entries = entries
        self._ordered = ordered

    async def relieve(self, now_s: float) -> None:
        """Relieve every partition with a wide span blocked by a task that runs or is not due."""
        late = [
            entry
            for entry in self._partitions.blocking(STUCK_SHARE)
            if self._entries.due_s(entry) > now_s + LONG_S
        ]
        for entry in dict.fromkeys((*self._partitions.blocking(FINISHED_SHARE), *late)):
            await self._relieve(entry)

    async def _relieve(self, entry: Delivery) -> None:
        if entry.state is DeliveryState.RUNNING and entry.row is not None:
            fence, owner = entry.row.fence, entry.owner
        elif entry.state is DeliveryState.HELD and entry.paid is None:
            fence, owner = _fence(entry), None
        else:
            return
        order = await self._ledger.relieve(entry.claimable(), fence, owner)
        if order is not None:
            self._finish(entry, order, fence)

    def _finish(self, entry: Delivery, order: Order, fence: int) -> None:
        """Finish a record and all copies of it; the replacement record stands for them too."""
        crash.reach("relief.ordered")
        for copy in self._entries.take_copies(entry, fence):
            self._partitions.finish(copy.partition, copy.offset)
            self._entries.end(copy)
        self._partitions.finish(entry.partition, entry.offset)
        self._partitions.flush()
        if entry.state is DeliveryState.HELD:
            self._entries.end(entry)
        self._ordered([order])


def _fence(entry: Delivery) -> int:
    """Return the fence at which the task waits.

    A record may be ahead of a ledger that lost its last transactions.
    """
    fence = entry.publication.fence
    return fence if entry.row is None else min(fence, entry.row.fence)
