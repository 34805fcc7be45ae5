"""Lets a wide span move on that one slow task blocks: another record is ordered for the task, and its own is finished with."""

from collections.abc import Callable, Sequence

from agent.entry import State
from agent.partitions import Partitions
from agent.ports import Ledger, Order
from schemas import crash


class Relief:
    """Relieves the partitions of one agent. The order is written under the task's claim, so that it cannot be lost."""

    def __init__(self, *, ledger: Ledger, partitions: Partitions, ordered: Callable[[Sequence[Order]], None]) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._ordered = ordered

    async def relieve(self) -> None:
        """Relieve every partition whose span is wide, almost finished, and blocked by a task that runs here."""
        for entry in self._partitions.blocking():
            if entry.state is State.RUNNING and entry.row is not None:
                order = await self._ledger.relieve(entry.task_id, entry.row.fence, entry.owner)
                if order is not None:
                    crash.reach("relief.ordered")
                    self._partitions.finish(entry.partition, entry.offset)
                    self._partitions.flush()
                    self._ordered([order])
