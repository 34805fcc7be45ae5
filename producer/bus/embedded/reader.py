"""Reads whole topics of the embedded bus. Changes nothing."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docllm.producer.bus.embedded import log, topics
from docllm.producer.bus.embedded.executor import BusExecutor
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.ports import Incoming
from docllm.schemas.errors import ConfigError

PAGE_RECORDS = 500
PAGE_BYTES = 4 << 20


@dataclass(slots=True, eq=False)
class EmbeddedTopicReader:
    """TopicReader on the bus file."""

    path: Path

    async def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        """Yield the records in pages; the records of one partition keep their order."""
        executor = BusExecutor(self.path, executor=None)
        try:
            bounds = await executor.run(partial(_bounds, topic=topic))
            for number, partition_id, low, high in bounds:
                position = low
                while position < high:
                    page = await executor.run(
                        partial(_page, partition_id=partition_id, position=position)
                    )
                    if not page:
                        break
                    position = page[-1].offset + 1
                    yield [
                        Incoming(number, record.offset, record.key, record.value, record.headers)
                        for record in page
                        if record.offset < high
                    ]
        finally:
            await executor.close()


def _bounds(file: BusFile, *, topic: str) -> list[tuple[int, int, int, int]]:
    bounds = topics.bounds(file, topic)
    if not bounds:
        raise ConfigError(
            f"there is no topic {topic}; name the one that holds the dead letters, "
            "by default <group>.dlq"
        )
    return bounds


def _page(file: BusFile, *, partition_id: int, position: int) -> list[log.Stored]:
    return log.read_records(
        file, partition_id, position, records=PAGE_RECORDS, size_bytes=PAGE_BYTES
    )
