"""The records of the inbox that wait to become tasks, in order, bounded by number and bytes."""

import asyncio
from collections import deque
from collections.abc import Sequence

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import Record
from docllm.schemas.task.record.envelope import record_bytes


class Inbox:
    """Keeps records until they are taken; pauses the inbox while it keeps enough of them."""

    def __init__(self, *, partitions: Partitions, limits: InFlightLimits) -> None:
        self._partitions = partitions
        self._limits = limits
        self._records: deque[Record] = deque()
        self._bytes = 0  # of the records in `_records`
        self._wake = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether no record waits."""
        return not self._records

    def add(self, records: Sequence[Record]) -> None:
        """Keep the records that are new to this agent."""
        begun = [
            record for record in records if self._partitions.begin(record.partition, record.offset)
        ]
        self._records.extend(begun)
        self._bytes += sum(map(_size, begun))
        self._wake.set()

    async def wait(self) -> None:
        """Wait until records were added since the last call."""
        await self._wake.wait()
        self._wake.clear()

    def take_page(self) -> list[Record]:
        """Take the oldest records, up to the limit for one transaction."""
        page: list[Record] = []
        size = 0
        most, most_bytes = self._limits.inbox_page, self._limits.inbox_page_bytes
        while self._records and len(page) < most and size < most_bytes:
            page.append(self._records.popleft())
            size += _size(page[-1])
        self._bytes -= size
        return page

    def finish(self, records: Sequence[Record]) -> None:
        """Let the offsets pass these records."""
        for record in records:
            self._partitions.finish_record(record.partition, record.offset)
        self._partitions.flush()

    def pause_or_resume(self) -> None:
        """Pause the inbox while enough records wait, and resume it once they are fewer."""
        limits = self._limits
        enough = len(self._records) > limits.inbox_records or self._bytes > limits.inbox_bytes
        self._partitions.pause(self._partitions.topics if enough else ())


def _size(record: Record) -> int:
    return record_bytes(record.key, record.value, record.headers)
