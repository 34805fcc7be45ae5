"""Sets records aside that name no task that we can trust. A record is finished with once the quarantine has it, not before."""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from agent.arrivals import distrusted
from agent.entries import Entries
from agent.entry import Entry, State
from agent.partitions import Partitions
from agent.ports import Answer, Ledger, Order, Record, Suspect
from agent.telemetry import Counts
from schemas import crash

log = logging.getLogger(__name__)

PAGE, PAGE_BYTES = 100, 8 << 20  # suspects in one transaction


class Aside:
    """The suspects of one agent, until they are in the quarantine."""

    def __init__(
        self, *, ledger: Ledger, partitions: Partitions, entries: Entries, counts: Counts, ordered: Callable[[Sequence[Order]], None]
    ) -> None:
        self._ledger = ledger
        self._partitions = partitions
        self._entries = entries
        self._counts = counts
        self._ordered = ordered
        self._suspects: deque[tuple[Suspect, Entry | Record]] = deque()

    def __len__(self) -> int:
        return len(self._suspects)

    def put(self, suspect: Suspect, record: Record) -> None:
        """Take a record that is no publication of ours."""
        self._suspects.append((suspect, record))

    def distrust(self, entry: Entry, said: Answer) -> None:
        """Take an entry that the ledger does not know, or knows otherwise."""
        reason = "its key or value is not that of the task it names" if said is Answer.CONFLICT else "the ledger has no such task"
        self._suspects.append((distrusted(entry, reason), entry))
        entry.state, entry.row = State.SETTLING, None  # it is no row's, so that what waits behind it is not compared with it

    async def keep(self) -> None:
        """Write what waits to the quarantine, and finish with it."""
        while self._suspects:
            batch = self._page()
            orders = await self._ledger.quarantine([suspect for suspect, _ in batch])
            crash.reach("quarantine.kept")
            for suspect, record in batch:
                log.warning("%s/%d/%d is quarantined: %s", suspect.topic, suspect.partition, suspect.offset, suspect.reason)
                self._partitions.finish(record.partition, record.offset)
                if isinstance(record, Entry):
                    self._entries.end(record)
            self._counts.quarantined += len(batch)
            self._partitions.flush()
            self._ordered(orders)

    def _page(self) -> list[tuple[Suspect, Entry | Record]]:
        page: list[tuple[Suspect, Entry | Record]] = []
        room = PAGE_BYTES
        while self._suspects and len(page) < PAGE and room > 0:
            page.append(self._suspects.popleft())
            room -= len(page[-1][0].value or b"")
        return page
