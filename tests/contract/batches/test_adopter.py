"""An archive is adopted only if it has all that the ledger has of the batch; then nothing runs."""

import asyncio
import gzip
import hashlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sqlalchemy import insert

from docllm.producer.ledger import store
from docllm.producer.ledger.retention import adoption_rows, archive_rows, purge_rules
from docllm.producer.ledger.retention.purge_rules import Keep
from docllm.producer.retention.adopter import Adopter
from docllm.producer.retention.archiver import ArchiveAlteredError
from docllm.producer.retention.manifest import NAME
from docllm.producer.retention.purge import lost_archive
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.states import Status
from tests.contract.batches.test_archiver import Memory, archiver, ended, run
from tests.support.ledger_database import BATCH, GROUP, SUCCEEDED, TOO_LONG, LedgerDatabase


class Restored:
    """A ledger with an archived batch, and with what a backup had from before it was archived."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self.ledger_db = ledger_db
        self.memory = Memory()
        self.ids = ended(ledger_db)
        self.manifest = run(archiver(ledger_db, self.memory), ledger_db)
        (uri,) = self.memory.named(NAME)
        self.uri = uri.removesuffix(NAME)

    def back(self, *keys: str) -> list[int]:
        """Restore the ledger: it has some of the tasks, none has ended, and the load runs."""
        self.ledger_db.empty()
        return self.ledger_db.load(*(keys or ("a", "b", "dead")))

    def adopt(self) -> int:
        adopter = Adopter(
            transactions=self.ledger_db.transactions, executor=InlineExecutor(), store=self.memory
        )
        return asyncio.run(adopter.adopt(GROUP, self.uri, self.manifest, "somebody"))

    def rewrite(self, number: int, change: Any) -> None:
        """Change the lines of a file, and its entry in the manifest with it."""
        file = self.manifest.files[number]
        lines = gzip.decompress(self.memory.objects[self.uri + file.name]).splitlines()
        content = gzip.compress(b"\n".join(map(change, lines)))
        self.memory.objects[self.uri + file.name] = content
        sha256 = hashlib.sha256(content).hexdigest()
        files = list(self.manifest.files)
        files[number] = replace(file, bytes=len(content), sha256=sha256)
        self.store_manifest(files=tuple(files))

    def store_manifest(self, **values: Any) -> None:
        """Change fields of the stored manifest."""
        self.manifest = replace(self.manifest, **values)
        self.memory.objects[self.uri + NAME] = self.manifest.stored()

    @property
    def row(self) -> Any:
        (row,) = self.ledger_db.rows(tables.batch)
        return row

    def untouched(self) -> bool:
        return self.row.archived_at is None and self.ledger_db.rows(tables.archive) == []


@pytest.fixture
def restored(ledger_db: LedgerDatabase) -> Restored:
    return Restored(ledger_db)


def test_open_tasks_end_whatever_they_do(restored: Restored) -> None:
    """Waiting ones, and one that a lost agent ran. The load ends too; other batches go on."""
    db = restored.ledger_db
    ids = restored.back()
    (other,) = db.load("other", into="another")
    row = db.claimed(ids[0], 7)
    db.settle(db.claimed(ids[1], 8), 8, SUCCEEDED)

    assert restored.adopt() == 2

    assert [db.status(task_id) for task_id in ids] == [
        Status.CANCELLED,
        Status.SUCCEEDED,
        Status.CANCELLED,
    ]
    assert db.status(other) is Status.PENDING
    db.settle(row, 7, SUCCEEDED)
    assert db.status(ids[0]) is Status.CANCELLED
    found = db.call(archive_rows.covering, db.batch().id)
    assert found is not None
    assert (found.uri, found.tasks) == (restored.uri, 5)
    assert found.digest == restored.manifest.contents().digest
    assert db.rows(tables.hook) == []
    with pytest.raises(UnsafeStateError):
        db.load("late")
    target = db.call(purge_rules.find, GROUP, BATCH)
    assert target is not None
    assert db.call(purge_rules.refusals, target, Keep.NOTHING, unarchived=False) == []


def test_a_manifest_that_another_version_wrote_is_found_again_by_a_purge(
    restored: Restored,
) -> None:
    """The ledger keeps the digest of the bytes that are stored."""
    manifest = orjson.loads(restored.memory.objects[restored.uri + NAME])
    restored.memory.objects[restored.uri + NAME] = orjson.dumps(manifest | {"newer": 1})
    restored.back()

    restored.adopt()

    target = restored.ledger_db.call(purge_rules.find, GROUP, BATCH)
    assert target is not None
    assert asyncio.run(lost_archive(restored.memory, target, reads=True)) == ""


@pytest.mark.parametrize("stored", [b"x", b"{}"])
def test_a_manifest_that_changed_since_it_was_found_is_refused(
    restored: Restored, stored: bytes
) -> None:
    """A person is told to run the command again."""
    restored.back()
    restored.memory.objects[restored.uri + NAME] = stored

    with pytest.raises(ArchiveAlteredError, match="changed while it was read"):
        restored.adopt()

    assert restored.untouched()


def test_an_interrupted_adoption_goes_on(
    restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its tasks have ended, no purge may delete them."""
    db = restored.ledger_db
    restored.back()
    monkeypatch.setattr(adoption_rows, "PAGE", 1)
    end_page, pages = adoption_rows.end_page, iter([True])

    def dying(*given: Any) -> int:
        if next(pages, False):
            return end_page(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(adoption_rows, "end_page", dying)
    with pytest.raises(KeyboardInterrupt):
        restored.adopt()
    target = db.call(purge_rules.find, GROUP, BATCH)
    assert target is not None
    assert db.call(purge_rules.refusals, target, Keep.NOTHING, unarchived=False)
    monkeypatch.setattr(adoption_rows, "end_page", end_page)

    assert restored.adopt() == 2

    assert db.call(archive_rows.covering, db.batch().id) is not None
    assert len(db.rows(tables.archive)) == 1


def test_a_batch_that_the_backup_lacks_is_made(restored: Restored) -> None:
    """The load that is repeated is refused, and calls nothing."""
    restored.ledger_db.empty()

    assert restored.adopt() == 0

    assert None not in (restored.row.archived_at, restored.row.purged_at, restored.row.closed_at)
    with pytest.raises(UnsafeStateError):
        restored.ledger_db.load("a")


def test_hooks_do_not_run_again(restored: Restored) -> None:
    """A batch is archived only after its hooks, so those of the backup have run."""
    db = restored.ledger_db
    ids = restored.back()
    row = {"task_id": ids[0], "batch_id": db.batch().id, "group_name": GROUP}
    db.run(lambda c: c.execute(insert(tables.hook).values(row)))

    restored.adopt()

    assert db.rows(tables.hook) == []


def test_a_task_that_the_archive_lacks_is_named(restored: Restored) -> None:
    """Nothing is changed."""
    restored.back("a", "since")

    with pytest.raises(ArchiveAlteredError, match=r"lacks task since .*nothing"):
        restored.adopt()

    assert restored.untouched()


def test_an_erased_task_need_not_be_in_the_archive(restored: Restored) -> None:
    """The task has no content, and another id than in the archive."""
    db = restored.ledger_db
    ids = restored.back()
    db.set(tables.task, ids[0], task_key=b"erased:1", status=int(Status.CANCELLED))

    assert restored.adopt() == 2


def test_a_task_with_another_line_is_named(restored: Restored) -> None:
    """The same id with other content is another task."""
    ids = restored.back()
    restored.ledger_db.set(tables.task, ids[1], digest=bytes(16))

    with pytest.raises(ArchiveAlteredError, match="task b has another line"):
        restored.adopt()

    assert restored.untouched()


def test_a_result_that_the_archive_lacks_is_named(restored: Restored) -> None:
    """An agent ran since the restore, and what it got is nowhere else."""
    db = restored.ledger_db
    ids = restored.back()
    db.settle(db.claimed(ids[2], 9), 9, SUCCEEDED)

    with pytest.raises(ArchiveAlteredError, match="task dead has a result here and none in"):
        restored.adopt()

    assert restored.untouched()


def test_a_death_here_does_not_matter(restored: Restored) -> None:
    """The archive has the answer that the task got before."""
    db = restored.ledger_db
    ids = restored.back()
    db.settle(db.claimed(ids[0], 9), 9, TOO_LONG)

    assert restored.adopt() == 2


def test_a_batch_that_changes_meanwhile_is_not_adopted(
    restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that still runs adds what no file has."""
    restored.back()
    get = restored.memory.get

    async def loading(uri: str, *, limit: int) -> bytes:
        restored.ledger_db.load("late")
        return await get(uri, limit=limit)

    monkeypatch.setattr(restored.memory, "get", loading)
    monkeypatch.setattr(adoption_rows, "missing", lambda *_given: None)

    with pytest.raises(UnsafeStateError, match="changed while its archive was read"):
        restored.adopt()

    assert restored.untouched()


SAME = b'{"task":{"task_key":"a","digest":"x","status":3}}'
DAMAGES: dict[str, Any] = {
    "other bytes": lambda restored: restored.memory.objects.update(
        {restored.uri + restored.manifest.files[1].name: b"x"}
    ),
    "cannot be decoded": lambda restored: restored.rewrite(1, lambda _line: b"[]"),
    "its manifest says": lambda restored: restored.rewrite(1, lambda _line: SAME),
    "another line": lambda restored: restored.rewrite(0, swapped),
}


def swapped(line: bytes) -> bytes:
    value = orjson.loads(line)
    value["task"]["digest"] = {"base64": "AAAA"}
    return orjson.dumps(value)


@pytest.mark.parametrize("said", DAMAGES)
def test_a_damaged_file_adopts_nothing(restored: Restored, said: str) -> None:
    """The error names the damaged file."""
    DAMAGES[said](restored)
    restored.back()

    with pytest.raises(ArchiveAlteredError, match=rf"part-0000\d.*{said}|{said}.*part-0000\d"):
        restored.adopt()

    assert restored.untouched()


def test_a_file_outside_of_the_archive_is_not_read(restored: Restored) -> None:
    """A manifest may be anybody's."""
    restored.back()
    first, *more = restored.manifest.files
    name = f"../{first.name}"
    restored.store_manifest(files=(replace(first, name=name), *more))

    with pytest.raises(ArchiveAlteredError, match="is not in the archive"):
        restored.adopt()


def test_the_batch_of_the_inbox_is_never_archived(restored: Restored) -> None:
    """Records that name no batch would be refused."""
    restored.ledger_db.empty()
    restored.store_manifest(batch=store.direct_batch(GROUP))

    with pytest.raises(UnsafeStateError, match="never archived"):
        restored.adopt()
