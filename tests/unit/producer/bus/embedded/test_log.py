"""Records of the bus file: appended, read, and trimmed."""

import sqlite3
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.bus.embedded import log, topics
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.schemas.task.record.envelope import Outgoing

RNG = Random(1)  # noqa: S311 - every record here has a key, so nothing is random


@given(st.lists(st.tuples(st.text(max_size=300), st.none() | st.binary(max_size=300))))
def test_headers_come_back_as_they_were(headers: list[tuple[str, bytes | None]]) -> None:
    """Any header names and values survive storage, including null and empty ones."""
    assert log.unpack_headers(log.pack_headers(headers)) == headers


def test_failed_append_leaves_nothing(tmp_path: Path) -> None:
    """A transaction of records is stored as a whole or not at all."""
    file = BusFile(tmp_path / "bus.sqlite")
    topics.create(file, "t", 1, TOPIC_SETTINGS)
    file.one("SELECT count(*) FROM record")
    with file.write() as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON record WHEN new.value = x'33' BEGIN SELECT "
            "RAISE(ABORT, 'disk full'); END"
        )

    with pytest.raises(sqlite3.IntegrityError, match="disk full"):
        log.append(file, [Outgoing("t", b"k", value, []) for value in (b"1", b"2", b"3")], RNG)

    assert file.one("SELECT count(*) FROM record") == (0,)
    assert file.one("SELECT high FROM partition") == (0,)
    file.close()


def test_record_for_an_unknown_topic_is_refused_for_now(tmp_path: Path) -> None:
    """A record for an unknown topic is refused temporarily, and the other records are stored.

    The topic can still be made.
    """
    file = BusFile(tmp_path / "bus.sqlite")
    topics.create(file, "t", 1, TOPIC_SETTINGS)

    answers = log.append(
        file, [Outgoing("absent", b"k", b"v", []), Outgoing("t", b"k", b"v", [])], RNG
    )

    assert answers[0] is not None
    assert not answers[0].permanent
    assert answers[1] is None
    file.close()


def test_nothing_is_read_across_a_gap(tmp_path: Path) -> None:
    """If the record at a position is deleted, a read returns nothing, so no record is skipped."""
    file = BusFile(tmp_path / "bus.sqlite")
    topics.create(file, "t", 1, TOPIC_SETTINGS)
    log.append(file, [Outgoing("t", b"k", b"%d" % n, []) for n in range(10)], RNG)

    topics.trim(file, {("t", 0): 4})

    assert log.read_records(file, 1, 3, records=10, size_bytes=1000) == []
    assert [
        record.offset for record in log.read_records(file, 1, 4, records=10, size_bytes=1000)
    ] == [
        4,
        5,
        6,
        7,
        8,
        9,
    ]
    file.close()


def test_batch_is_bounded_by_bytes_but_never_empty(tmp_path: Path) -> None:
    """A batch ends with the record that passes its limit; a single large record is still read."""
    file = BusFile(tmp_path / "bus.sqlite")
    topics.create(file, "t", 1, TOPIC_SETTINGS)
    log.append(file, [Outgoing("t", b"k", bytes(1000), []) for _ in range(5)], RNG)

    assert len(log.read_records(file, 1, 0, records=10, size_bytes=1500)) == 2
    assert len(log.read_records(file, 1, 0, records=10, size_bytes=1)) == 1
    file.close()


def test_trim_stops_at_the_end(tmp_path: Path) -> None:
    """Trimming beyond the end deletes everything and keeps the next offset.

    A later trim to a lower offset does nothing.
    """
    file = BusFile(tmp_path / "bus.sqlite")
    topics.create(file, "t", 1, TOPIC_SETTINGS)
    log.append(file, [Outgoing("t", b"k", b"v", [])] * 5, RNG)

    topics.trim(file, {("t", 0): 99})
    topics.trim(file, {("t", 0): 2})

    assert file.one("SELECT low, high FROM partition") == (5, 5)
    assert file.one("SELECT count(*) FROM record") == (0,)
    file.close()


def test_trimmed_pages_are_used_again(tmp_path: Path) -> None:
    """A bus that is trimmed while it is filled does not grow."""
    path = tmp_path / "bus.sqlite"
    file = BusFile(path)
    topics.create(file, "t", 1, TOPIC_SETTINGS)
    pages = []
    for turn in range(1, 6):
        log.append(file, [Outgoing("t", b"k", bytes(2000), [])] * 400, RNG)
        pages.append(file.one("PRAGMA page_count")[0])
        topics.trim(file, {("t", 0): turn * 400})

    assert pages[-1] <= pages[0] * 1.1
    file.close()


def test_the_topic_of_results_keeps_its_newest_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads it in this file, so it would grow for ever; other topics keep all."""
    monkeypatch.setattr(log, "RESULTS_KEPT", 3)
    file = BusFile(tmp_path / "bus.sqlite")
    for topic in ("g.results", "g.dlq"):
        topics.create(file, topic, 1, TOPIC_SETTINGS)
        for page in ((b"1", b"2"), (b"3", b"4", b"5")):
            log.append(file, [Outgoing(topic, b"k", value, []) for value in page], RNG)

    ((_, number, low, high),) = topics.bounds(file, "g.results")
    kept = log.read_records(file, number, low, records=9, size_bytes=99)
    assert ([record.value for record in kept], low, high) == ([b"3", b"4", b"5"], 2, 5)
    ((_, number, low, high),) = topics.bounds(file, "g.dlq")
    assert (len(log.read_records(file, number, 0, records=9, size_bytes=99)), low) == (5, 0)
    file.close()


def test_records_are_cut_into_short_transactions() -> None:
    """Many or large records are written in several transactions, complete and in order."""
    many = [Outgoing("t", None, b"v", [])] * 1_200
    large = [Outgoing("t", None, bytes(3 << 20), [])] * 3

    assert list(log.chunks(many)) == [slice(0, 500), slice(500, 1_000), slice(1_000, 1_200)]
    assert list(log.chunks(large)) == [slice(0, 2), slice(2, 3)]
    assert list(log.chunks([])) == []
