"""The embedded bus as the suites need it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from docllm.agent.consumer.embedded.reader import EmbeddedReader
from docllm.agent.consumer.embedded.source import EmbeddedSource
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import Source
from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.publisher import EmbeddedPublisher
from docllm.schemas.runtime.clock import SystemClock
from tests.contract.support.parts import Parts
from tests.support import embedded_bus
from tests.support.doubles import double_of

COMMIT = (
    "INSERT OR REPLACE INTO committed SELECT ?, p.id, ? FROM partition p JOIN topic t USING "
    "(topic_id) WHERE t.name=? AND p.number=?"
)


class KilledError(Exception):
    """Ends a source's thread at once, as SIGKILL would: its lock is freed, its rows stay."""


def parts(folder: Path) -> Parts:
    path = folder / "bus.sqlite"
    known: dict[str, str] = {}

    async def source(names: Sequence[str], group_id: str) -> Source:
        return EmbeddedSource(
            bus_path=path,
            topics=names,
            group_id=group_id,
            topic_ids=double_of(StoredIdsReader, current=lambda: known),
            clock=SystemClock(),
        )

    async def publisher() -> EmbeddedPublisher:
        return EmbeddedPublisher(path)

    async def admin() -> EmbeddedTopicAdmin:
        return EmbeddedTopicAdmin(path)

    async def delete_offsets(group_id: str) -> None:
        await _change(path, "DELETE FROM committed WHERE group_id=?", [(group_id,)])

    async def set_offsets(group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        await _change(
            path,
            COMMIT,
            [(group_id, offset, topic, number) for (topic, number), offset in offsets.items()],
        )

    async def delete_topic(topic: str) -> None:
        await _with_file(path, lambda file: embedded_bus.delete_topic(file, topic))

    return Parts(
        source=source,
        publisher=publisher,
        admin=admin,
        kill=_kill,
        delete_topic=delete_topic,
        delete_offsets=delete_offsets,
        set_offsets=set_offsets,
        session_s=1.0,
        known=known,
    )


async def _kill(source: Source) -> None:
    def die(_: EmbeddedReader) -> None:
        raise KilledError

    assert isinstance(source, EmbeddedSource)
    source._requests.put(die)
    await asyncio.to_thread(source._thread.join)


def _change(path: Path, sql: str, rows: Sequence[tuple[object, ...]]) -> Awaitable[None]:
    def change(file: BusFile) -> None:
        with file.write() as db:
            db.executemany(sql, rows)

    return _with_file(path, change)


async def _with_file(path: Path, call: Callable[[BusFile], None]) -> None:
    file = BusFile(path)
    try:
        call(file)
    finally:
        file.close()
