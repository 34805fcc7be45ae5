"""An archive holds all of a batch, is read back before the batch counts as archived, and is safe.

Whoever dies over it, whatever lies in the folder, nothing of another archive is overwritten.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.ports.outcome import Outcome
from docllm.producer.ledger import cancel, store
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.replay import tasks as replay_tasks
from docllm.producer.retention import formats
from docllm.producer.retention.archiver import Archiver, folder_name
from docllm.producer.retention.formats import ArchiveFormat
from docllm.producer.retention.manifest import Manifest
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.allowed_uris import folder_uri
from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.result.codec import COMPLETION, POINTER
from docllm.schemas.task.result.notes import NoteKind
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
    new_task,
)

FOLDER = "s3://bucket/archive/"
HOSTILE = 'a"\n\x1b[2J<script>'


class Memory:
    """A store in memory, which may lose or alter what it was given."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts_left = 10**6
        self.hashed: list[str] = []

    async def put_new(self, uri: str, content: bytes) -> None:
        if self.puts_left == 0:
            raise ObjectError(ObjectFault.OUTAGE, f"{uri} cannot be had")
        self.puts_left -= 1
        if uri in self.objects:
            raise ObjectError(ObjectFault.EXISTS, f"{uri} exists already")
        self.objects[uri] = content

    async def get(self, uri: str, *, limit: int) -> bytes:
        content = self.objects.get(uri)
        if content is None:
            raise ObjectError(ObjectFault.MISSING, f"{uri} does not exist")
        if len(content) > limit:
            raise ObjectError(ObjectFault.TOO_LARGE, f"{uri} is too large")
        return content

    async def sha256(self, uri: str, *, limit: int) -> str:
        self.hashed.append(uri)
        return hashlib.sha256(await self.get(uri, limit=limit)).hexdigest()

    async def sizes(self, folder: str) -> dict[str, int]:
        return {
            uri.removeprefix(folder): len(content)
            for uri, content in self.objects.items()
            if uri.startswith(folder)
        }

    def named(self, end: str) -> list[str]:
        return sorted(uri for uri in self.objects if uri.endswith(end))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def archiver(ledger_db: LedgerDatabase, memory: Memory, **more: Any) -> Archiver:
    return Archiver(
        transactions=ledger_db.transactions,
        executor=InlineExecutor(),
        store=memory,
        ledger_id=ledger_db.ledger_id,
        to=FOLDER,
        max_tasks=2,
        **more,
    )


def ended(ledger_db: LedgerDatabase) -> list[int]:
    """Load five tasks and end them: three answers, a death, a cancelled task."""
    agent = ledger_db.agent()
    ids = ledger_db.load("a", "b", HOSTILE, "dead", "cancelled")
    noted = replace(SUCCEEDED, notes=((NoteKind.OMITTED, ("page 3",)),))
    outcomes: list[Outcome] = [noted, SUCCEEDED, SUCCEEDED, TOO_LONG]
    for number, outcome in enumerate(outcomes):
        owner = owner_of(agent.agent_id, number + 1)
        row = ledger_db.claimed(ids[number], owner)
        ledger_db.settle(row, owner, outcome)
    ledger_db.call(store.close_batch, ledger_db.batch())
    ledger_db.call(cancel.cancel_one, b"cancelled", GROUP, None, "somebody")
    ledger_db.run(lambda c: c.execute(tables.hook.delete()))
    return ids


def run(made: Archiver, ledger_db: LedgerDatabase, batch: str = BATCH) -> Manifest:
    return asyncio.run(made.archive(ledger_db.batch(batch), "somebody"))[1]


def records(memory: Memory, manifest: Manifest) -> Iterator[dict[str, Any]]:
    for file in manifest.files:
        (uri,) = memory.named(file.name)
        yield from map(
            orjson.loads, formats.lines_of(ArchiveFormat(manifest.format), memory.objects[uri])
        )


def archived_at(ledger_db: LedgerDatabase) -> Any:
    return ledger_db.rows(tables.batch)[0].archived_at


@pytest.mark.parametrize("file_format", list(ArchiveFormat))
def test_an_archive_has_all_of_each_task(
    ledger_db: LedgerDatabase, memory: Memory, file_format: ArchiveFormat
) -> None:
    """Tasks stand in the order of loading, with input, answer, attempts and dead letter."""
    if file_format is ArchiveFormat.PARQUET:
        pytest.importorskip("pyarrow")
    ids = ended(ledger_db)

    manifest = run(archiver(ledger_db, memory, file_format=file_format), ledger_db)

    lines = list(records(memory, manifest))
    assert [line["task"]["id"] for line in lines] == ids
    assert [line["id"] for line in lines] == ["a", "b", HOSTILE, "dead", "cancelled"]
    assert [line["status"] for line in lines] == ["succeeded"] * 3 + ["dead", "cancelled"]
    assert [file.tasks for file in manifest.files] == [2, 2, 1]
    assert lines[0]["input"]["body"] == "value of a"
    assert lines[0]["result"]["body"] == "answer"
    assert lines[0]["result"]["codec"] == COMPLETION
    assert [len(line["attempts"]) for line in lines] == [0, 0, 0, 1, 0]
    assert lines[0]["notes"] == {"omitted": ["page 3"]}
    assert not any("notes" in line for line in lines[1:])
    assert lines[3]["dead_letter"]["error_class"] == "TOO_LONG"
    assert lines[3]["attempts"][0]["cost_micro"] == 300
    contents = manifest.contents()
    assert contents == contents | {"tasks": 5, "results": 3, "dead": 1}
    (row,) = ledger_db.rows(tables.archive)
    assert (row.tasks, row.results, row.dead, row.files) == (5, 3, 1, 3)
    assert bytes(row.digest) == contents["digest"]
    assert row.verified_at is not None
    assert archived_at(ledger_db) is not None
    (stored,) = memory.named("manifest.json")
    assert Manifest.of_stored(memory.objects[stored]) == manifest


def test_hostile_names_stay_inside_the_folder(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """The name of a batch is never a path."""
    name = "../../etc/\x1b[31mpasswd"
    ledger_db.load("a", into=name)
    ledger_db.call(store.close_batch, ledger_db.batch(name))
    (task_id,) = [row.id for row in ledger_db.rows(tables.task)]
    ledger_db.settle(ledger_db.claimed(task_id, 1), 1, SUCCEEDED)

    run(archiver(ledger_db, memory), ledger_db, name)

    assert all(
        uri.startswith(FOLDER) and uri.removeprefix(FOLDER).count("/") == 1 and "/." not in uri
        for uri in memory.objects
    )
    assert folder_name("...", "0" * 32) == "batch-000000000000"


def test_a_result_outside_the_ledger_keeps_its_pointer(
    ledger_db: LedgerDatabase, memory: Memory
) -> None:
    """The object itself is not copied."""
    ids = ended(ledger_db)
    pointer = b'{"uri":"s3://results/a.json","size":3,"sha256":"x","codec":0,"start":0}'
    ledger_db.set(tables.task_result, ids[0], codec=POINTER, body=pointer)

    manifest = run(archiver(ledger_db, memory), ledger_db)

    line = next(records(memory, manifest))
    assert (line["answer"], line["result"]["codec"]) == (None, POINTER)
    assert line["result"]["body"].encode() == pointer


def test_bytes_that_are_no_text_come_back_whole(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """A damaged result ends no archive."""
    ids = ended(ledger_db)
    ledger_db.set(tables.task_result, ids[0], codec=1, body=b"\xff\x00 no zlib")

    line = next(records(memory, run(archiver(ledger_db, memory), ledger_db)))

    assert line["result"]["body"] == {"base64": "/wAgbm8gemxpYg=="}
    assert line["result"]["codec"] == 1


def test_an_interrupted_archive_is_continued(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """The archive's files serve, and there is one manifest in one folder."""
    ended(ledger_db)
    memory.puts_left = 2
    with pytest.raises(ObjectError):
        run(archiver(ledger_db, memory), ledger_db)
    assert archived_at(ledger_db) is None
    assert memory.named("manifest.json") == []
    memory.puts_left = 10**6

    run(archiver(ledger_db, memory), ledger_db)

    assert len({uri.rpartition("/")[0] for uri in memory.objects}) == 1
    assert len(ledger_db.rows(tables.archive)) == 1


def test_files_of_others_are_not_overwritten(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """A file with other content makes the archive go to another folder."""
    ended(ledger_db)
    made = archiver(ledger_db, memory)
    memory.puts_left = 1
    with pytest.raises(ObjectError):
        run(made, ledger_db)
    (uri,) = memory.objects
    memory.objects[uri] = b"somebody's"
    memory.puts_left = 10**6

    run(made, ledger_db)

    assert memory.objects[uri] == b"somebody's"
    first, second = ledger_db.rows(tables.archive)
    assert (first.ended_at is None, first.verified_at) == (False, None)
    assert second.verified_at is not None


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], gzip.compress])
def test_a_file_that_the_store_alters_marks_nothing(
    ledger_db: LedgerDatabase, memory: Memory, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is not archived, so nothing of it may be purged."""
    ended(ledger_db)
    get = memory.get

    async def altered(uri: str, *, limit: int) -> bytes:
        content = await get(uri, limit=limit)
        return bytes(damage(content)) if "part-00002" in uri else content

    monkeypatch.setattr(memory, "get", altered)

    with pytest.raises(UnsafeStateError, match=r"part-00002.*nothing is marked"):
        run(archiver(ledger_db, memory), ledger_db)

    assert archived_at(ledger_db) is None
    assert ledger_db.rows(tables.archive)[0].verified_at is None


def test_the_test_above_finds_a_mark_that_comes_too_early(
    ledger_db: LedgerDatabase, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: a batch is marked before its files are read back."""

    async def nothing(*_given: Any) -> None:
        return None

    monkeypatch.setattr(Archiver, "_verify", nothing)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_file_that_the_store_alters_marks_nothing(
            ledger_db, memory, gzip.compress, monkeypatch
        )


def test_a_row_that_changes_behind_the_archive_marks_nothing(
    ledger_db: LedgerDatabase, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are compared with the ledger, not only with what was written."""
    ids = ended(ledger_db)
    made = archiver(ledger_db, memory)
    verify = made._verify

    async def changed(*given: Any) -> None:
        ledger_db.set(tables.task_result, ids[1], body=b"another")
        await verify(*given)

    monkeypatch.setattr(made, "_verify", changed)

    with pytest.raises(UnsafeStateError, match="other content than the ledger"):
        run(made, ledger_db)

    assert archived_at(ledger_db) is None


def test_a_batch_that_changes_meanwhile_is_not_marked(
    ledger_db: LedgerDatabase, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is loaded between the files and the mark is in no file."""
    ended(ledger_db)
    made = archiver(ledger_db, memory)
    verify = made._verify

    async def loaded(*given: Any) -> None:
        await verify(*given)
        ledger_db.load("late")

    monkeypatch.setattr(made, "_verify", loaded)

    with pytest.raises(UnsafeStateError, match="changed while it was archived"):
        run(made, ledger_db)

    assert archived_at(ledger_db) is None


def test_a_manifest_that_is_none_is_refused() -> None:
    """A half file, another program's file, or a later version's."""
    for content in (b"", b"{", b"[]", b'{"version":2}', b'{"version":1,"files":[]}'):
        with pytest.raises(ValueError, match=r"manifest|version|text"):
            Manifest.of_stored(content)


def test_only_what_an_archive_covers_may_be_purged(
    ledger_db: LedgerDatabase, memory: Memory
) -> None:
    """A program of an older version may change an archived batch: then no archive covers it."""
    ended(ledger_db)
    run(archiver(ledger_db, memory), ledger_db)
    batch_id = ledger_db.batch().id
    covering = ledger_db.call(archive_rows.covering, batch_id)
    assert covering is not None
    assert covering.tasks == 5

    ledger_db.ago(tables.archive.c.created_at, 60)

    assert ledger_db.call(archive_rows.covering, batch_id) is None


def test_the_folder_for_files_is_a_path_or_a_uri(tmp_path: Path) -> None:
    """Both name one folder."""
    assert folder_uri(str(tmp_path)) == f"{tmp_path.as_uri()}/"
    assert folder_uri("s3://bucket/a") == "s3://bucket/a/"
    with pytest.raises(ValueError, match="written to folders"):
        folder_uri("https://host/a/")


def test_an_archived_batch_takes_nothing_new(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """Tasks that it has are known; others are refused, with the place of the archive."""
    ended(ledger_db)
    run(archiver(ledger_db, memory), ledger_db)
    into = ledger_db.batch()

    accepted = ledger_db.accept([new_task("a"), new_task("b")], into)

    assert (accepted.new, accepted.known, accepted.orders) == ({}, (0, 1), ())
    with pytest.raises(UnsafeStateError, match=rf"is archived at {FOLDER}.*--batch"):
        ledger_db.accept([new_task("a"), new_task("other")], into)
    with pytest.raises(UnsafeStateError, match="is archived"):
        ledger_db.call(store.begin_load, into)
    assert ledger_db.count(tables.task) == 5


def test_dead_letters_of_an_archived_batch_stay_dead(
    ledger_db: LedgerDatabase, memory: Memory
) -> None:
    """A replay skips them, even one that was ordered before."""
    ids = ended(ledger_db)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    run(archiver(ledger_db, memory), ledger_db)

    assert ledger_db.call(replay_tasks._ended_batches, ids) == {ledger_db.batch().id}


def test_an_archive_is_not_made_of_what_is_left(ledger_db: LedgerDatabase, memory: Memory) -> None:
    """A new archive would be the batch's newest one, and lack what the one before has."""
    ended(ledger_db)
    run(archiver(ledger_db, memory), ledger_db)
    batch_update = tables.batch.update().values(purging_at=utc_now())
    ledger_db.run(lambda c: c.execute(batch_update))

    with pytest.raises(UnsafeStateError, match=rf"would lack them; keep the archive {FOLDER}"):
        run(archiver(ledger_db, memory), ledger_db)

    assert len(memory.named("manifest.json")) == 1


def test_a_manifest_with_names_that_are_no_texts_is_none(
    ledger_db: LedgerDatabase, memory: Memory
) -> None:
    """`check` compares them, and the folder may be anybody's."""
    ended(ledger_db)
    stored = orjson.loads(run(archiver(ledger_db, memory), ledger_db).stored())

    with pytest.raises(ValueError, match="no text"):
        Manifest.of_stored(orjson.dumps({**stored, "batch": ["b"]}))
