"""Reads whole topics of the embedded bus. Changes nothing."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path

from producer.bus.embedded import log
from producer.bus.embedded import topics as bus
from producer.bus.embedded.executor import BusExecutor
from producer.bus.embedded.file import BusFile
from producer.ports import Incoming
from schemas.errors import ConfigError

PAGE_RECORDS, PAGE_BYTES = 500, 4 << 20


class EmbeddedTopicReader:
    """TopicReader on the bus file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        """Yield the records in pages; the records of one partition keep their order."""
        executor = BusExecutor(self._path, None)
        try:
            for number, partition_id, low, high in await executor.run(
                partial(_bounds, topic=topic)
            ):
                position = low
                while position < high and (
                    page := await executor.run(
                        partial(_page, partition_id=partition_id, position=position)
                    )
                ):
                    position = page[-1].offset + 1
                    yield [
                        Incoming(number, one.offset, one.key, one.value, one.headers)
                        for one in page
                        if one.offset < high
                    ]
        finally:
            await executor.close()


def _bounds(file: BusFile, *, topic: str) -> list[tuple[int, int, int, int]]:
    found = bus.bounds(file, topic)
    if not found:
        raise ConfigError(
            f"there is no topic {topic}; name the one that holds the dead letters, "
            "by default <group>.dlq"
        )
    return found


def _page(file: BusFile, *, partition_id: int, position: int) -> list[log.Stored]:
    return log.read(file, partition_id, position, records=PAGE_RECORDS, size_bytes=PAGE_BYTES)
