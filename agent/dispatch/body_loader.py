"""Reads the bodies of claimed deliveries from the ledger if they came, or waited, without."""

from collections.abc import Iterable

from agent.inflight.decoder import RecordDecoder
from agent.inflight.delivery import Delivery
from agent.inflight.table import InFlightTable
from agent.ports import Ledger
from schemas.task.envelope import digest


class BodyLoader:
    """Completes the deliveries of one agent."""

    def __init__(self, *, ledger: Ledger, entries: InFlightTable, arrivals: RecordDecoder) -> None:
        self._ledger = ledger
        self._entries = entries
        self._arrivals = arrivals

    async def fetch(self, claimed: Iterable[Delivery], *, moving: bool = False) -> set[Delivery]:
        """Give these deliveries their bodies; return those that must be claimed again.

        These are deliveries whose bodies name another route than assumed: a pointer record has no
        body, and was assumed to be a task of the default route. A delivery that is moved to a tier
        needs only its route (`moving`).
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
