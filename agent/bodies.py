"""Reads the bodies of claimed deliveries from the ledger if they came, or waited, without."""

from collections.abc import Iterable

from agent.arrivals import Arrivals
from agent.entries import Entries
from agent.entry import Entry
from agent.ports import Ledger
from schemas.envelope import digest


class Bodies:
    """Completes the deliveries of one agent."""

    def __init__(self, *, ledger: Ledger, entries: Entries, arrivals: Arrivals) -> None:
        self._ledger = ledger
        self._entries = entries
        self._arrivals = arrivals

    async def fetch(self, claimed: Iterable[Entry], *, moving: bool = False) -> set[Entry]:
        """Give these deliveries their bodies; return those that must be claimed again.

        These are deliveries whose bodies name another route than assumed: a pointer record has no
        body, and was assumed to be a task of the default route. A delivery that is moved to a tier
        needs only its route (`moving`).
        """
        lacking = (entry for entry in claimed if entry.value is None and entry.paid is None)
        bare = {entry.task_id: entry for entry in lacking if entry.digest is None or not moving}
        found = await self._ledger.bodies(sorted(bare)) if bare else {}
        return {bare[task_id] for task_id, (key, value) in found.items() if self._complete(bare[task_id], key, value)}

    def _complete(self, entry: Entry, key: bytes, value: bytes) -> bool:
        entry.value = value
        self._entries.bodies_bytes += len(value)
        before = entry.route
        if entry.digest is None:
            entry.digest, entry.route = digest(key, value), self._arrivals.route_of(value)
        return entry.route != before
