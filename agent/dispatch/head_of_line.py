"""Head-of-line relief: unblocks a partition stuck behind one slow task.

The task runs, or waits for long. Relief orders a replacement record for it and finishes the
original record.
"""

from dataclasses import dataclass

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


@dataclass(kw_only=True, eq=False)
class HeadOfLine:
    """Relieves the partitions of one agent.

    The ledger writes the order only if the row is claimed, or waits, at the record's fence. It
    compares the record with its task: a foreign record, which only names a task, is not relieved,
    because its value would be lost.
    """

    ledger: Ledger
    partitions: Partitions
    table: InFlightTable
    own_orders: OwnOrders
    limits: InFlightLimits

    async def relieve(self, now_s: float) -> None:
        """Relieve every partition with a wide span blocked by a task that runs or is not due."""
        long_waits = [
            delivery
            for delivery in self.partitions.blocking(self.limits.stuck_share)
            if self.table.due_at_s(delivery) > now_s + LONG_S
        ]
        for delivery in dict.fromkeys(
            (*self.partitions.blocking(self.limits.finished_share), *long_waits)
        ):
            await self._relieve(delivery)

    async def _relieve(self, delivery: Delivery) -> None:
        if delivery.state is DeliveryState.RUNNING and delivery.row is not None:
            fence, owner = delivery.row.fence, delivery.owner
        elif delivery.state in _WAITS and delivery.kept_answer is None:
            fence, owner = _fence(delivery), None
        else:
            return
        order = await self.ledger.relieve(delivery.claimable(), fence, owner)
        if order is not None:
            self._finish_relieved(delivery, order, fence)

    def _finish_relieved(self, delivery: Delivery, order: Order, fence: int) -> None:
        """Finish a record and all its copies; the replacement record replaces all of them."""
        crash.reach("relief.ordered")
        for copy in self.table.behind.take_copies(delivery, fence):
            self.partitions.finish_record(copy.partition, copy.offset)
            self.table.remove(copy)
        self.partitions.finish_record(delivery.partition, delivery.offset)
        self.partitions.flush()
        if delivery.state in _WAITS:
            self.table.remove(delivery)
        self.own_orders.send([order])


def _fence(delivery: Delivery) -> int:
    """Return the fence at which the task waits: the lower one of the record's and the row's.

    A record may be ahead of a ledger that lost its last transactions.
    """
    fence = delivery.publication.fence
    return fence if delivery.row is None else min(fence, delivery.row.fence)
