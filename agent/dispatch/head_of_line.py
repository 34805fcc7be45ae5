"""Head-of-line relief: unblocks a partition stuck behind one slow task.

The task runs, or waits for long. Relief orders a replacement record for it and finishes the
original record.
"""

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Ledger, Order
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.runtime import crash

# A blocking task that waits longer than LONG_S is relieved at `InFlightLimits.stuck_share` already.
LONG_S = 60.0

_WAITS = {DeliveryState.DELAYED, DeliveryState.BEHIND}


class HeadOfLine:
    """Relieves the partitions of one agent.

    The ledger writes the order only if the row is claimed, or waits, at the record's fence. It
    compares the record with its task: a foreign record, which only names a task, is not relieved,
    because its value would be lost.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        partitions: Partitions,
        table: InFlightTable,
        own_orders: OwnOrders,
        limits: InFlightLimits,
    ) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._table = table
        self._own_orders = own_orders
        self._limits = limits

    async def relieve(self, now_s: float) -> None:
        """Relieve every partition with a wide span blocked by a task that runs or is not due."""
        long_waits = [
            delivery
            for delivery in self._partitions.blocking(self._limits.stuck_share)
            if self._table.due_at_s(delivery) > now_s + LONG_S
        ]
        for delivery in dict.fromkeys(
            (*self._partitions.blocking(self._limits.finished_share), *long_waits)
        ):
            await self._relieve(delivery)

    async def _relieve(self, delivery: Delivery) -> None:
        if delivery.state is DeliveryState.RUNNING and delivery.row is not None:
            fence, owner = delivery.row.fence, delivery.owner
        elif delivery.state in _WAITS and delivery.kept_answer is None:
            fence, owner = _fence(delivery), None
        else:
            return
        order = await self._ledger.relieve(delivery.claimable(), fence, owner)
        if order is not None:
            self._finish_relieved(delivery, order, fence)

    def _finish_relieved(self, delivery: Delivery, order: Order, fence: int) -> None:
        """Finish a record and all its copies; the replacement record replaces all of them."""
        crash.reach("relief.ordered")
        for copy in self._table.behind.take_copies(delivery, fence):
            self._partitions.finish_record(copy.partition, copy.offset)
            self._table.remove(copy)
        self._partitions.finish_record(delivery.partition, delivery.offset)
        self._partitions.flush()
        if delivery.state in _WAITS:
            self._table.remove(delivery)
        self._own_orders.send([order])


def _fence(delivery: Delivery) -> int:
    """Return the fence at which the task waits: the lower one of the record's and the row's.

    A record may be ahead of a ledger that lost its last transactions.
    """
    fence = delivery.publication.fence
    return fence if delivery.row is None else min(fence, delivery.row.fence)
