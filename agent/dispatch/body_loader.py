"""Reads the bodies of claimed deliveries that came, or waited, without a body."""

from collections.abc import Iterable

from agent.inflight.decoder import RecordDecoder
from agent.inflight.delivery import Delivery
from agent.inflight.table import InFlightTable
from agent.ports import Ledger
from schemas.task.envelope import digest


class BodyLoader:
    """Completes claimed deliveries with their bodies from the ledger."""

    def __init__(self, *, ledger: Ledger, entries: InFlightTable, arrivals: RecordDecoder) -> None:
        self._ledger = ledger
        self._entries = entries
        self._arrivals = arrivals

    async def fetch(self, claimed: Iterable[Delivery], *, moving: bool = False) -> set[Delivery]:
        """Load the missing bodies of these deliveries; return the deliveries to claim again.

        A delivery must be claimed again if its body names another route than assumed. A pointer
        record has no body, so the default route was assumed. With `moving`, the deliveries go to a
        tier, so a delivery whose route is known needs no body.
        """
        lacking = (entry for entry in claimed if entry.value is None and entry.paid is None)
        bare = {entry.task_id: entry for entry in lacking if entry.digest is None or not moving}
        found = await self._ledger.bodies(sorted(bare)) if bare else {}
        return {
            bare[task_id]
            for task_id, (key, value) in found.items()
            if self._complete(bare[task_id], key, value)
        }

    def _complete(self, entry: Delivery, key: bytes, value: bytes) -> bool:
        entry.value = value
        self._entries.bodies_bytes += len(value)
        before = entry.route
        if entry.digest is None:
            entry.digest, entry.route = digest(key, value), self._arrivals.route_of(value)
        return entry.route != before
