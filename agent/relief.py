"""Lets a wide span move on that one task blocks, which runs or waits for long: another record is ordered for it, its own finished with."""

from collections.abc import Callable, Sequence

from agent.entries import Entries
from agent.entry import Entry, State
from agent.partitions import Partitions
from agent.ports import Answer, Ledger, Order
from schemas import crash


class Relief:
    """Relieves the partitions of one agent. The order is written while the row is claimed, or waits, at the record's fence.

    A record that was not asked about, since it waits behind another of its task, may be anybody's: `distrust` takes it aside.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        partitions: Partitions,
        entries: Entries,
        ordered: Callable[[Sequence[Order]], None],
        distrust: Callable[[Entry, Answer], None],
    ) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._entries = entries
        self._ordered = ordered
        self._distrust = distrust

    async def relieve(self) -> None:
        """Relieve every partition whose span is wide, almost finished, and blocked by a task that runs here or is not due yet."""
        for entry in self._partitions.blocking():
            if entry.state is State.RUNNING and entry.row is not None:
                order = await self._ledger.relieve(entry.task_id, entry.row.fence, entry.owner)
            elif entry.state is State.HELD and entry.paid is None:
                order = await self._order_of_held(entry)
            else:
                continue
            if order is not None:
                self._finish(entry, order)

    async def _order_of_held(self, entry: Entry) -> Order | None:
        known = self._entries.known(entry)
        if known:
            return await self._ledger.relieve(entry.task_id, entry.publication.fence, None)
        if known is False:
            self._distrust(entry, Answer.CONFLICT)
        return None

    def _finish(self, entry: Entry, order: Order) -> None:
        crash.reach("relief.ordered")
        self._partitions.finish(entry.partition, entry.offset)
        self._partitions.flush()
        if entry.state is State.HELD:
            self._entries.end(entry)
        self._ordered([order])
