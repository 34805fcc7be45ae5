"""A purge deletes what is kept of final batches, and nothing else; agents see no change."""

import hashlib
import io
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, Table, delete, insert

from docllm.agent.ledger.counts.compaction import CompactionLimits, compact
from docllm.agent.ports import ClaimAnswer
from docllm.producer.ledger import cancel, outbox, store
from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.dead_letters.error_groups import listed
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ledger.results.export import ALL, export
from docllm.producer.ledger.results.result_lines import docllm_line
from docllm.producer.ledger.retention import archive_rows, purge_rows
from docllm.producer.ledger.retention.purge_rows import Purgeable
from docllm.producer.ledger.status import group_sums
from docllm.producer.ports import Item
from docllm.producer.retention.manifest import ArchiveFile, Manifest
from docllm.producer.retention.purge import purge
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.task.states import Status
from tests.contract.batches.test_archiver import Memory
from tests.contract.support.ledger_dead import applied, dead, delivered, killed, request, stored
from tests.support.clock import HandClock
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)

FOLDER = "file:///a/"
MANIFEST = f"{FOLDER}manifest.json"
PART = f"{FOLDER}part-00001.jsonl.gz"
LINES = b"its tasks"
FLIPPED = b"its tasKs"  # one bit is another
SHA256 = hashlib.sha256(LINES).hexdigest()
STORED = Manifest(
    group=GROUP,
    batch=BATCH,
    batch_id=1,
    ledger="l",
    archive=1,
    format="jsonl.gz",
    schema="s",
    docllm="v",
    created_at="t",
    files=(
        ArchiveFile(
            name=PART.removeprefix(FOLDER),
            bytes=len(LINES),
            tasks=3,
            results=1,
            dead=1,
            first_task=1,
            last_task=3,
            sha256=SHA256,
            lines_sha256="",
        ),
    ),
).stored()
NOTES = ((NoteKind.OMITTED, ("page 3",)),)
GAUGES: dict[str, Any] = {"kept": Counter()}  # what the ledger holds now
OF_TASKS = (
    tables.task,
    tables.task_input,
    tables.task_result,
    tables.result_note,
    tables.task_attempt,
    tables.reply,
    tables.dead_letter,
    tables.dead_line,
    tables.follow_up,
    tables.hook,
    tables.task_loss,
)


def final(ledger_db: LedgerDatabase, into: str = BATCH) -> list[int]:
    """Make a closed batch with a success, a death and a cancelled task; return their ids."""
    (succeeded,) = ledger_db.load(f"{into}-a", into=into)
    killed(ledger_db, succeeded, replace(SUCCEEDED, notes=NOTES))
    (died,) = dead(ledger_db, f"{into}-b", into=into)
    (cancelled,) = ledger_db.load(f"{into}-c", into=into)
    ledger_db.call(store.close_batch, ledger_db.batch(into))
    batch_id = ledger_db.batch(into).id
    ledger_db.call(cancel.cancel_one, f"{into}-c".encode(), GROUP, batch_id, "ann")
    delivered(ledger_db)
    return [succeeded, died, cancelled]


def archived(ledger_db: LedgerDatabase, name: str = BATCH) -> None:
    row = {
        "batch_id": ledger_db.batch(name).id,
        "uri": FOLDER,
        "verified_at": utc_now(),
        "digest": hashlib.sha256(STORED).digest(),
    }
    ledger_db.run(lambda c: c.execute(insert(tables.archive).values(**row)))


def archives() -> Memory:
    """Return a store in which the archive of `archived` is whole."""
    memory = Memory()
    memory.objects |= {MANIFEST: STORED, PART: LINES}
    return memory


def emptied(ledger_db: LedgerDatabase, table: Table[Any]) -> None:
    ledger_db.run(lambda c: c.execute(delete(table)))


def target(ledger_db: LedgerDatabase, name: str = BATCH) -> Purgeable:
    found = ledger_db.call(purge_rows.find, GROUP, name)
    assert found is not None
    return found


async def purged(
    ledger_db: LedgerDatabase,
    name: str = BATCH,
    memory: Memory | None = None,
    **options: Any,
) -> int:
    return await purge(
        ledger_db.transactions,
        HandClock(),
        target(ledger_db, name),
        store=memory or archives(),
        actor="ann",
        **options,
    )


def sums(ledger_db: LedgerDatabase) -> group_sums.GroupSums:
    return ledger_db.call(group_sums.read_sums, GROUP, str)


def counters(ledger_db: LedgerDatabase) -> group_sums.GroupSums:
    return replace(sums(ledger_db), **GAUGES)


def lines(ledger_db: LedgerDatabase, line_of: Any = docllm_line) -> list[Any]:
    output = io.BytesIO()
    export(ledger_db.database.run_singly, {ledger_db.batch().id: ALL}, line_of, output.write)
    return [orjson.loads(line) for line in output.getvalue().splitlines()]


async def test_all_of_a_batch_goes_and_its_counts_stay(ledger_db: LedgerDatabase) -> None:
    """No row of the batch's tasks is left, and no counter has moved; other batches are whole.

    Only the gauges of what the ledger holds leave the purged tasks out.
    """
    gone, kept = final(ledger_db), final(ledger_db, "other")
    archived(ledger_db)
    before = counters(ledger_db)

    assert await purged(ledger_db) == 3

    assert [row.id for row in ledger_db.rows(tables.task)] == kept
    for table in OF_TASKS[1:]:
        ids = {getattr(row, "task_id", 0) for row in ledger_db.rows(table)}
        assert ids.isdisjoint(gone), table.name
    assert counters(ledger_db) == before
    ledger_db.call(compact, CompactionLimits(after_s=0.0))
    assert counters(ledger_db) == before
    assert sums(ledger_db).kept[Status.DEAD] == 1
    row = next(row for row in ledger_db.rows(tables.batch) if row.name == BATCH)
    assert None not in (row.archived_at, row.purging_at, row.purged_at)
    assert [found.example.batch for found in ledger_db.call(listed, GROUP, Selection())] == [
        "other"
    ]


async def test_a_late_record_of_a_purged_task_is_done(ledger_db: LedgerDatabase) -> None:
    """From the mark on, a record is answered `done`, whether its row is there or gone."""
    succeeded, died, cancelled = final(ledger_db)
    archived(ledger_db)
    which = target(ledger_db)
    ledger_db.call(purge_rows.begin_purge, which, "ann", unarchived=False)

    page = ledger_db.call(purge_rows.purge_page, which, (succeeded, cancelled), 2)

    assert page == (cancelled, 2)
    owner = ledger_db.agent().next_owner()
    for task_id in (succeeded, died, cancelled):
        assert ledger_db.claim(task_id, owner) is ClaimAnswer.DONE
        assert ledger_db.ask(task_id) is ClaimAnswer.DONE

    assert await purged(ledger_db) == 1
    assert ledger_db.claim(cancelled, owner) is ClaimAnswer.DONE


@pytest.mark.parametrize(
    ("busy", "reason"),
    [
        ("archive", "it was not archived"),
        ("change", "it was not archived since it changed"),
        ("load", "its load has not ended"),
        ("task", "some of its tasks are not final"),
        ("guard", "a guard holds it back"),
        ("replay", "a replay has not ended"),
        ("hook", "hooks of its tasks have not run"),
        ("dlq", "records of 1 ended task of it are not on their topics yet"),
        ("results", "records of 1 ended task of it are not on their topics yet"),
    ],
)
async def test_a_batch_that_is_used_is_not_purged(
    ledger_db: LedgerDatabase, busy: str, reason: str
) -> None:
    """A batch that is not archived as it is, or with which something works, stays whole."""
    _, died, _ = final(ledger_db)
    batch_id = ledger_db.batch().id
    archived(ledger_db)
    if busy == "archive":
        emptied(ledger_db, tables.archive)
    elif busy == "change":
        ledger_db.ago(tables.archive.c.created_at, 60)
    elif busy == "load":
        ledger_db.set(tables.batch, batch_id, closed_at=None)
    elif busy == "task":
        ledger_db.load("d")
        archived(ledger_db)
    elif busy == "guard":
        row = {"group_name": GROUP, "batch_id": batch_id, "type": "document", "route": "r"}
        ledger_db.run(lambda c: c.execute(insert(tables.guard).values(**row)))
    elif busy == "replay":
        assert stored(ledger_db, request()) is not None
    elif busy == "hook":
        row = {"group_name": GROUP, "task_id": died, "batch_id": batch_id, "event": "dead"}
        ledger_db.run(lambda c: c.execute(insert(tables.hook).values(**row)))
    elif busy in {"dlq", "results"}:
        ledger_db.call(outbox.place, GROUP, busy, [Item(outbox.TASK, died, 0)])

    with pytest.raises(UnsafeStateError, match=reason):
        await purged(ledger_db)

    assert ledger_db.count(tables.task_input) >= 3
    assert all(row.purging_at is None for row in ledger_db.rows(tables.batch))


@pytest.mark.parametrize(
    ("uri", "stored"),
    [
        (MANIFEST, None),
        (MANIFEST, b"another one"),
        (MANIFEST, b""),
        (PART, None),
        (PART, b"its"),
        (PART, FLIPPED),
    ],
)
async def test_a_batch_whose_archive_is_gone_is_not_purged(
    ledger_db: LedgerDatabase, uri: str, stored: bytes | None
) -> None:
    """An archive that was deleted or overwritten keeps the rows; the refusal says what to do."""
    final(ledger_db)
    archived(ledger_db)
    memory = archives()
    del memory.objects[uri]
    if stored is not None:
        memory.objects[uri] = stored

    with pytest.raises(UnsafeStateError) as refused:
        await purged(ledger_db, memory=memory)
    assert str(refused.value).startswith(f"batch {BATCH}: of its archive, {uri} ")
    assert f"archive --batch {BATCH} --group {GROUP} --to DIR" in str(refused.value)

    assert ledger_db.count(tables.task_input) == 3
    assert all(row.purging_at is None for row in ledger_db.rows(tables.batch))
    assert await purged(ledger_db, memory=memory, unarchived=True) == 3


class KilledError(Exception):
    """The end of a command that was killed."""


async def test_a_purge_that_was_cut_off_tells_that_rows_are_gone(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new archive would lack them, from the mark on; the same command completes it."""
    final(ledger_db)
    archived(ledger_db)
    memory = archives()

    def killed(*_: object) -> bool:
        raise KilledError

    monkeypatch.setattr(purge_rows, "purge_page", killed)

    with pytest.raises(KilledError):
        await purged(ledger_db, memory=memory)

    assert all(row.purging_at for row in ledger_db.rows(tables.batch))
    memory.objects[PART] = FLIPPED
    with pytest.raises(UnsafeStateError, match="; put the archive back, or purge it with --una"):
        await purged(ledger_db, memory=memory)
    with pytest.raises(UnsafeStateError, match=f"would lack them; keep the archive {FOLDER}"):
        ledger_db.call(archive_rows._require_final, ledger_db.batch())
    monkeypatch.undo()
    assert await purged(ledger_db) == 3
    assert all(row.purged_at for row in ledger_db.rows(tables.batch))


async def test_a_store_of_archives_that_is_away_keeps_the_rows(ledger_db: LedgerDatabase) -> None:
    """Nobody knows whether the archive is there, so the failure is the store's."""
    final(ledger_db)
    archived(ledger_db)
    away = archives()
    away.get = unreachable  # type: ignore[method-assign]

    with pytest.raises(ObjectError, match="does not answer"):
        await purged(ledger_db, memory=away)

    assert ledger_db.count(tables.task) == 3


async def unreachable(uri: str, *, limit: int) -> bytes:
    raise ObjectError(ObjectFault.OUTAGE, f"{uri} does not answer, whatever its limit, {limit}")


async def test_a_batch_without_an_archive_goes_if_its_loss_is_asked_for(
    ledger_db: LedgerDatabase,
) -> None:
    """The batch is marked as archived too, so that late records are `done`."""
    succeeded, *_ = final(ledger_db)

    assert await purged(ledger_db, unarchived=True) == 3
    assert ledger_db.ask(succeeded) is ClaimAnswer.DONE


async def test_an_archive_stays_good_when_the_databases_clock_is_set_back(
    ledger_db: LedgerDatabase,
) -> None:
    """The batch then seems to be made after its archive; only changes of tasks count."""
    final(ledger_db)
    ledger_db.ago(tables.tally.c.created_at, 60)
    ledger_db.ago(tables.batch.c.created_at, -60)
    archived(ledger_db)

    assert target(ledger_db).is_archived


async def test_a_task_that_runs_again_keeps_all_that_it_has(ledger_db: LedgerDatabase) -> None:
    """A replay that passed the check before the mark costs nothing: its task is left out."""
    _, died, _ = final(ledger_db)
    archived(ledger_db)
    ledger_db.set(tables.batch, ledger_db.batch().id, closed_at=utc_now())
    which = target(ledger_db)
    ledger_db.call(purge_rows.begin_purge, which, "ann", unarchived=False)
    ledger_db.set(tables.task, died, status=int(Status.PENDING), fence=1)

    _, deleted = ledger_db.call(purge_rows.purge_page, which, (1, died + 9), 100)

    assert deleted == 2
    assert [row.task_id for row in ledger_db.rows(tables.task_input)] == [died]
    assert not ledger_db.call(purge_rows.finish, which)


async def test_nothing_without_its_input_is_replayed(ledger_db: LedgerDatabase) -> None:
    """A replay that was stored before leaves such a task dead, and a new one does not take it."""
    final(ledger_db)
    run = stored(ledger_db, request())
    emptied(ledger_db, tables.task_input)

    assert applied(ledger_db, run).counts == {ItemState.SKIPPED: 1}
    assert stored(ledger_db, request()) is None
    assert stored(ledger_db, request(cancelled=True)) is None


async def test_a_purged_batch_takes_no_task(ledger_db: LedgerDatabase) -> None:
    """What loads the same input again is told that it would be paid again."""
    final(ledger_db)
    archived(ledger_db)
    before = ledger_db.batch()
    await purged(ledger_db)

    with pytest.raises(UnsafeStateError, match="was purged: its lines would be new tasks"):
        ledger_db.call(store.open_batch, BATCH, GROUP)
    with pytest.raises(UnsafeStateError, match="was purged"):
        ledger_db.accept([new_task("a")], before)


async def test_the_inboxs_own_batch_is_not_purged(ledger_db: LedgerDatabase) -> None:
    """Records come into it at any time."""
    name = store.direct_batch(GROUP)
    ledger_db.batch(name, origin=store.Origin.INBOX)
    final(ledger_db, name)
    archived(ledger_db, name)

    with pytest.raises(UnsafeStateError, match="inbox records that name no batch"):
        await purged(ledger_db, name=name)
    assert ledger_db.count(tables.task) == 3


async def test_the_old_batches_are_those_that_have_not_changed(ledger_db: LedgerDatabase) -> None:
    """A batch is as old as the last change of its tasks; one that was purged is none."""
    final(ledger_db)
    final(ledger_db, "other")
    now = ledger_db.run(selection_query.now)
    ledger_db.ago(tables.batch.c.created_at, 7200)
    ledger_db.ago(tables.tally.c.created_at, 3600)
    ledger_db.load("other-d", into="other")

    old = ledger_db.call(purge_rows.unchanged_since, GROUP, now - timedelta(minutes=30))
    assert [found.name for found in old] == [BATCH]
    assert ledger_db.call(purge_rows.unchanged_since, GROUP, now - timedelta(minutes=90)) == []

    await purged(ledger_db, unarchived=True)
    assert ledger_db.call(purge_rows.unchanged_since, GROUP, now - timedelta(minutes=30)) == []


async def late_record_is_done(ledger_db: LedgerDatabase) -> bool:
    """Purge a batch; return whether its records are done after each step."""
    ids = final(ledger_db)
    archived(ledger_db)
    owner = ledger_db.agent().next_owner()
    answers: list[ClaimAnswer] = []

    def look(_done: int) -> None:
        answers.extend(ledger_db.claim(task_id, owner) for task_id in ids)

    await purged(ledger_db, progress=look)
    look(0)
    return set(answers) == {ClaimAnswer.DONE}


def without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """Delete rows of a batch that is not marked yet."""
    patch.setattr(purge_rows, "begin_purge", lambda *_given, **_named: None)


def marked_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Mark the batch when its rows are gone."""
    mark, finish = purge_rows.begin_purge, purge_rows.finish

    def finished(connection: Connection, which: Purgeable) -> bool:
        mark(connection, which, "ann", unarchived=True)
        return finish(connection, which)

    patch.setattr(purge_rows, "finish", finished)
    without_a_mark(patch)


@pytest.mark.parametrize("bug", [without_a_mark, marked_at_the_end])
async def test_a_purge_before_its_mark_is_caught(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch, bug: Any
) -> None:
    """Without the mark, a late record would be quarantined; this planted bug shows it."""
    bug(monkeypatch)

    assert not await late_record_is_done(ledger_db)


async def test_late_records_are_done_at_each_moment(ledger_db: LedgerDatabase) -> None:
    """The same without a planted bug."""
    assert await late_record_is_done(ledger_db)


async def test_a_planted_page_that_asks_for_no_state_loses_a_task(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that deletes tasks of any state would lose one that runs again."""
    _, died, _ = final(ledger_db)
    archived(ledger_db)
    which = target(ledger_db)
    ledger_db.set(tables.task, died, status=int(Status.PENDING), fence=1)
    monkeypatch.setattr(purge_rows, "FINAL", tuple(Status))

    ledger_db.call(purge_rows.purge_page, which, (1, died + 9), 100)

    assert ledger_db.count(tables.task) == 0


def test_a_change_that_is_rolled_up_meanwhile_is_seen(ledger_db: LedgerDatabase) -> None:
    """A batch would count as archived if its last change were looked for in two places in turn."""
    final(ledger_db)

    class Compacting:
        """A connection that rolls up the counts as soon as it has read the roll-ups."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        def execute(self, query: Any) -> Any:
            found = self._connection.execute(query).freeze()
            if "tally_sum" in str(query):
                compact(self._connection, CompactionLimits(after_s=0.0))
            return found()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    before = ledger_db.call(purge_rows.find, GROUP, BATCH)
    seen: Any = ledger_db.run(lambda c: purge_rows.find(Compacting(c), GROUP, BATCH))  # type: ignore[arg-type]

    assert before is not None
    assert before.changed_at > ledger_db.rows(tables.batch)[0].created_at
    assert seen.changed_at == before.changed_at
