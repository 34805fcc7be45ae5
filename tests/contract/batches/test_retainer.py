"""The duty of retention: what is due, in which order, and one agent at a time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from docllm.agent.ledger.leases import duty_turns
from docllm.agent.maintenance.cleanup.retainer import Retainer
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.settings.config import RetentionConfig
from tests.contract.batches.test_archiver import Memory, archiver, ended
from tests.support.clock import HandClock
from tests.support.ledger_database import BATCH, GROUP, LedgerDatabase

DAY_S = 86_400
ARCHIVES = RetentionConfig(archive="s3://bucket/archive/")
SETTINGS = replace(ARCHIVES, purge_after_s=90 * DAY_S)


def retainer(
    ledger_db: LedgerDatabase, memory: Memory, settings: RetentionConfig = SETTINGS
) -> Retainer:
    return Retainer(
        transactions=ledger_db.transactions,
        clock=HandClock(),
        group=GROUP,
        settings=settings,
        archiver=archiver(ledger_db, memory),
        store=memory,
    )


def old(ledger_db: LedgerDatabase) -> list[int]:
    """End a batch, whose dead letters then reach their topic."""
    ids = ended(ledger_db)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    return ids


def aged(ledger_db: LedgerDatabase, days: float) -> None:
    """Let all have happened so many days ago, the archive a moment after the batch's end."""
    for column in (tables.batch.c.created_at, tables.tally.c.created_at):
        ledger_db.ago(column, days * DAY_S)
    if ledger_db.count(tables.archive):
        ledger_db.ago(tables.archive.c.created_at, days * DAY_S - 60)


async def archived(ledger_db: LedgerDatabase, memory: Memory) -> None:
    await archiver(ledger_db, memory).archive(ledger_db.batch(), "ann")


def batch(ledger_db: LedgerDatabase) -> Any:
    return ledger_db.rows(tables.batch)[0]


async def test_an_old_batch_is_archived_and_then_goes(ledger_db: LedgerDatabase) -> None:
    """Both happen in one round, which reads the archive once; counts stay."""
    memory = Memory()
    old(ledger_db)
    duty = retainer(ledger_db, memory)

    aged(ledger_db, 89)
    assert await duty.retain() == 0
    assert memory.objects == {}

    aged(ledger_db, 91)
    tally = len(ledger_db.rows(tables.tally))
    assert await duty.retain() == 2
    assert None not in (batch(ledger_db).archived_at, batch(ledger_db).purged_at)
    assert len(memory.named("manifest.json")) == 1
    assert memory.hashed == []  # the archive was read back a moment before
    assert ledger_db.count(tables.task) == ledger_db.count(tables.dead_letter) == 0
    assert len(ledger_db.rows(tables.tally)) == tally
    assert await duty.retain() == 0


async def test_without_an_age_nothing_is_deleted(ledger_db: LedgerDatabase) -> None:
    """A batch is archived after a day."""
    ids = old(ledger_db)
    aged(ledger_db, 400)

    assert await retainer(ledger_db, Memory(), ARCHIVES).retain() == 1

    assert ledger_db.count(tables.task) == len(ids)


async def test_an_archive_that_a_person_made_is_read_first(ledger_db: LedgerDatabase) -> None:
    """Someone may have changed it since."""
    memory = Memory()
    old(ledger_db)
    await archived(ledger_db, memory)
    aged(ledger_db, 100)

    assert await retainer(ledger_db, memory).retain() == 1

    assert memory.hashed
    assert ledger_db.count(tables.task) == 0


async def test_a_store_that_is_away_keeps_everything(ledger_db: LedgerDatabase) -> None:
    """Nothing is deleted of a batch that no archive has, however old it is."""
    memory = Memory()
    memory.puts_left = 0
    ids = old(ledger_db)
    aged(ledger_db, 400)

    with pytest.raises(UnreachableError, match=f"batch '{BATCH}'"):
        await retainer(ledger_db, memory).retain()

    assert ledger_db.count(tables.task) == ledger_db.count(tables.task_input) == len(ids)


async def test_a_batch_that_changed_after_its_archive_is_archived_again(
    ledger_db: LedgerDatabase,
) -> None:
    """As if a program of an older version had replayed a task there."""
    memory = Memory()
    old(ledger_db)
    duty = retainer(ledger_db, memory)
    await archived(ledger_db, memory)
    aged(ledger_db, 100)
    ledger_db.ago(tables.archive.c.created_at, 200 * DAY_S)
    memory.puts_left = 0

    with pytest.raises(UnreachableError, match=f"batch '{BATCH}'"):
        await duty.retain()
    assert ledger_db.count(tables.task)

    memory.puts_left = 10
    assert await duty.retain() == 1
    assert len(memory.named("manifest.json")) == 2
    assert ledger_db.count(tables.task) == 0


async def test_rows_stay_when_their_archive_is_gone(ledger_db: LedgerDatabase) -> None:
    """Whoever deleted the archive, nothing more is deleted here; a person is told each time."""
    memory = Memory()
    ids = old(ledger_db)
    duty = retainer(ledger_db, memory)
    await archived(ledger_db, memory)
    aged(ledger_db, 100)
    (manifest,) = memory.named("manifest.json")
    kept = memory.objects.pop(manifest)

    with pytest.raises(UnsafeStateError, match=f"{manifest} is not there any more"):
        await duty.retain()
    assert ledger_db.count(tables.task) == len(ids)

    memory.objects[manifest] = kept
    assert await duty.retain() == 1
    assert ledger_db.count(tables.task) == 0


async def test_a_batch_whose_rows_a_person_purges_is_told(ledger_db: LedgerDatabase) -> None:
    """The batch changed after its archive and may lack rows: a person must end that purge."""
    ids = old(ledger_db)
    memory = Memory()
    duty = retainer(ledger_db, memory)
    await archived(ledger_db, memory)
    aged(ledger_db, 100)
    ledger_db.ago(tables.archive.c.created_at, 200 * DAY_S)
    ledger_db.run(lambda c: c.execute(tables.batch.update().values(purging_at=utc_now())))

    with pytest.raises(UnsafeStateError, match="rows of it are purged"):
        await duty.retain()

    assert ledger_db.count(tables.task) == len(ids)


def test_one_agent_has_the_turn(ledger_db: LedgerDatabase) -> None:
    """Other agents wait until the turn has ended; its owner renews it."""
    first = ledger_db.call(duty_turns.take, "a", 0, 60.0)
    assert first
    assert ledger_db.call(duty_turns.take, "a", 0, 60.0) == 0
    assert ledger_db.call(duty_turns.take, "b", 0, 60.0)
    renewed = ledger_db.call(duty_turns.take, "a", first, -60.0)
    assert renewed
    assert ledger_db.call(duty_turns.take, "a", 0, 60.0)
    assert ledger_db.call(duty_turns.take, "a", renewed, 60.0) == 0


async def test_a_turn_is_kept_while_a_batch_takes_long(ledger_db: LedgerDatabase) -> None:
    """Only the agent that has the turn renews it, also while it looks for the next batch."""
    mine, other = retainer(ledger_db, Memory()), retainer(ledger_db, Memory())
    await mine.retain()

    def turn() -> int:
        rows = ledger_db.rows(tables.id_block)
        return next(int(row.next) for row in rows if row.name.startswith("turn:"))

    before = turn()
    await other.keep_turn()
    assert turn() == before
    await asyncio.gather(mine.keep_turn(), mine.keep_turn(), mine.retain())
    assert turn() != before
    await other.retain()
    await mine.keep_turn()
    assert ledger_db.call(duty_turns.take, f"retention of {GROUP}", 0, 60.0) == 0
