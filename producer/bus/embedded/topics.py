"""Topics of the bus: make, describe, grow, trim.

This module only reads the offsets of groups; `group` alone writes them.
"""

import json
import uuid
from collections.abc import Mapping, Sequence

from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.log import first_place
from docllm.producer.ports import Backlog, TopicState
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.runtime import crash

_TRIM_ROWS = 2_000


def cluster_id(file: BusFile) -> str:
    """Return the id that was drawn when the file was made."""
    return str(file.one("SELECT id FROM cluster")[0])


def states_of(file: BusFile, topics: Sequence[str]) -> dict[str, TopicState]:
    """Return the state of each given topic that exists."""
    rows = file.all("SELECT name, topic_id, partitions, settings FROM topic")
    return {
        name: TopicState(topic_id, count, json.loads(text))
        for name, topic_id, count, text in rows
        if name in topics
    }


def create(file: BusFile, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Make a topic with a fresh topic id.

    Raises UnsafeStateError when the topic exists, ValueError when it would have no partition.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    topic_id = uuid.uuid4().hex
    with file.write() as db:
        if db.execute("SELECT 1 FROM topic WHERE name=?", (topic,)).fetchone():
            raise UnsafeStateError(f"topic {topic} already exists")
        db.execute(
            "INSERT INTO topic VALUES (?, ?, ?, ?)",
            (topic, topic_id, partitions, json.dumps(dict(settings))),
        )
        db.executemany(
            "INSERT INTO partition (topic_id, number) VALUES (?, ?)",
            [(topic_id, number) for number in range(partitions)],
        )


def configure(file: BusFile, topic: str, settings: Mapping[str, str]) -> None:
    """Set a topic's settings; raise UnsafeStateError when it does not exist."""
    with file.write() as db:
        if not db.execute(
            "UPDATE topic SET settings=? WHERE name=?", (json.dumps(dict(settings)), topic)
        ).rowcount:
            raise _missing(topic)


def grow(file: BusFile, topic: str, partitions: int) -> None:
    """Add partitions; raise UnsafeStateError unless `partitions` exceeds their number."""
    with file.write() as db:
        row = db.execute("SELECT topic_id, partitions FROM topic WHERE name=?", (topic,)).fetchone()
        if row is None:
            raise _missing(topic)
        topic_id, count = row
        if partitions <= count:
            raise UnsafeStateError(
                f"topic {topic} has {count} partitions, which cannot become {partitions}"
            )
        db.execute("UPDATE topic SET partitions=? WHERE name=?", (partitions, topic))
        db.executemany(
            "INSERT INTO partition (topic_id, number) VALUES (?, ?)",
            [(topic_id, n) for n in range(count, partitions)],
        )


def trim(file: BusFile, offsets: Mapping[tuple[str, int], int]) -> None:
    """Delete the records below these offsets; raise ValueError for a negative offset.

    An offset above the end of a partition deletes the records that exist.
    """
    if any(offset < 0 for offset in offsets.values()):
        raise ValueError("an offset to trim to is negative, which would delete everything")
    for (topic, number), offset in offsets.items():
        _trim_one(file, topic, number, offset)


def _trim_one(file: BusFile, topic: str, number: int, offset: int) -> None:
    with file.write() as db:
        row = db.execute(
            "UPDATE partition SET low=max(low, min(?, high)) WHERE number=?"
            " AND topic_id=(SELECT topic_id FROM topic WHERE name=?) RETURNING id, low",
            (offset, number, topic),
        ).fetchone()
    if row is None:
        raise _missing(f"{topic} [{number}]")
    # The low watermark is raised first. Records below it are invisible already, so deleting them
    # may take many short transactions.
    crash.reach("trim.low_raised")
    start = first_place(row[0])
    end = start + row[1]
    while _delete_some(file, start, end):
        pass


def _delete_some(file: BusFile, start: int, end: int) -> bool:
    with file.write() as db:
        deleted = db.execute(
            "DELETE FROM record WHERE place IN"
            " (SELECT place FROM record WHERE place>=? AND place<? ORDER BY place LIMIT ?)",
            (start, end, _TRIM_ROWS),
        )
        return deleted.rowcount == _TRIM_ROWS


def backlog(file: BusFile, group_id: str, topics: Sequence[str]) -> Backlog:
    """Return a group id's position.

    A partition counts from its low watermark if it has no committed offset, or one out of range.
    """
    lag = 0
    oldest: list[int] = []
    committed: dict[tuple[str, int], int] = {}
    with file.snapshot() as db:
        for name, number, partition_id, low, high, offset in _positions(file, group_id, topics):
            start = offset if offset is not None and low <= offset <= high else low
            lag += high - start
            if offset is not None:
                committed[name, number] = offset
            row = db.execute(
                "SELECT timestamp_ms FROM record WHERE place=?",
                (first_place(partition_id) + start,),
            ).fetchone()
            oldest += row or ()
    return Backlog(lag, min(oldest, default=None), committed)


def bounds(file: BusFile, topic: str) -> list[tuple[int, int, int, int]]:
    """Return number, partition id, low and high watermark of each partition of a topic.

    The list is empty if the topic does not exist.
    """
    rows = file.all(
        "SELECT p.number, p.id, p.low, p.high FROM partition p JOIN topic t USING (topic_id)"
        " WHERE t.name=?",
        (topic,),
    )
    return [(number, partition_id, low, high) for number, partition_id, low, high in sorted(rows)]


def _positions(
    file: BusFile, group_id: str, topics: Sequence[str]
) -> list[tuple[str, int, int, int, int, int | None]]:
    rows = file.all(
        'SELECT t.name, p.number, p.id, p.low, p.high, c."offset" FROM topic t'
        " JOIN partition p USING (topic_id)"
        " LEFT JOIN committed c ON c.group_id=? AND c.partition_id=p.id",
        (group_id,),
    )
    return [
        (name, number, partition, low, high, offset)
        for name, number, partition, low, high, offset in rows
        if name in topics
    ]


def _missing(topic: str) -> UnsafeStateError:
    return UnsafeStateError(f"topic {topic} does not exist; run `docllm topics apply`")
