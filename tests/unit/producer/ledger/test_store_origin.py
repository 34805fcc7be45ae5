"""The origin of a batch: writers to the inbox add to no load and take none of its ids."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection

from docllm.producer.app import opened
from docllm.producer.cli.load import command
from docllm.producer.cli.parser import parser
from docllm.producer.ledger import quarantine, store
from docllm.producer.ledger.status import group_status
from docllm.producer.ledger.store import (
    Origin,
    begin_load,
    direct_batch,
    find_batch,
    half_loaded,
    open_batch,
    own_batch,
)
from docllm.producer.loading import foreign_records
from docllm.producer.ports import Incoming
from docllm.producer.replay import from_topic, records
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime import collector
from docllm.schemas.settings.sources import ledger_url, load_config
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.record.rejected_record import RejectedRecord

LINE = b'{"id":"2024.txt","prompt":"Sum up."}\n'


@pytest.fixture(autouse=True)
def _no_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the collector of the test process as it is."""
    monkeypatch.setattr(collector, "calm", lambda: None)


def run(database: Database, work: Callable[[Connection], object]) -> object:
    return database.run(work)


def loading(folder: Path, *arguments: str) -> int:
    (folder / "tasks.jsonl").write_bytes(LINE)
    options = parser().parse_args(["load", str(folder / "tasks.jsonl"), *arguments])
    return asyncio.run(command.load(load_config(flags={}, environ={}, cwd=folder), options))


@pytest.fixture
def inbox_batch(tmp_path: Path) -> Path:
    """Make a folder with a ledger in which the inbox has made the batch `reports`."""

    async def make() -> None:
        async with opened(load_config(flags={}, environ={}, cwd=tmp_path), "docllm") as parts:
            await parts.transactions.write(open_batch, "reports", "docllm", Origin.INBOX)

    asyncio.run(make())
    return tmp_path


@pytest.mark.parametrize("origin", [Origin.INBOX, Origin.QUARANTINE])
def test_a_foreign_record_adds_to_no_loaded_batch(database: Database, origin: Origin) -> None:
    """A foreign record adds to no loaded batch, not even by a replay of the rejected record.

    Its result used to be exported as the loaded line's.
    """
    run(database, lambda c: open_batch(c, "reports", "g"))

    with pytest.raises(
        UnsafeStateError,
        match="batch 'reports' was made by a load and takes no record of the inbox",
    ):
        run(database, lambda c: open_batch(c, "reports", "g", origin))


@pytest.mark.parametrize("origin", [Origin.INBOX, Origin.QUARANTINE])
def test_a_foreign_record_joins_a_loaded_batch_where_that_is_configured(
    database: Database, origin: Origin
) -> None:
    """With `join_batches`, records add to loaded batches, which stay those of a load."""
    made = run(database, lambda c: open_batch(c, "reports", "g"))

    assert run(database, lambda c: open_batch(c, "reports", "g", origin, joins=True)) == made


@pytest.mark.parametrize("maker", [Origin.INBOX, Origin.QUARANTINE])
@pytest.mark.parametrize("adder", [Origin.INBOX, Origin.QUARANTINE, Origin.LETTERS])
def test_foreign_records_share_their_batches(
    database: Database, maker: Origin, adder: Origin
) -> None:
    """Foreign records share their batches, even after quarantine and replay."""
    made = run(database, lambda c: open_batch(c, "night", "g", maker))

    assert run(database, lambda c: open_batch(c, "night", "g", adder)) == made


@pytest.mark.parametrize("adder", [Origin.LOAD, Origin.INBOX, Origin.QUARANTINE])
def test_a_batch_of_posted_tasks_takes_no_others(database: Database, adder: Origin) -> None:
    """Whoever posts chooses the ids; where they may join, records of the inbox do."""
    made = run(database, lambda c: open_batch(c, "posted", "g", Origin.HTTP))

    with pytest.raises(UnsafeStateError, match="'posted' holds tasks that were posted over HTTP"):
        run(database, lambda c: open_batch(c, "posted", "g", adder))
    for friend in (Origin.HTTP, Origin.LETTERS):
        assert run(database, partial(open_batch, name="posted", group="g", origin=friend)) == made
    if adder.foreign:
        assert run(database, lambda c: open_batch(c, "posted", "g", adder, joins=True)) == made


@pytest.mark.parametrize("maker", [Origin.LOAD, Origin.INBOX, Origin.QUARANTINE])
def test_posted_tasks_join_no_batch_of_others(database: Database, maker: Origin) -> None:
    """A batch of a load takes them where that is configured; one of the inbox never does."""
    made = run(database, lambda c: open_batch(c, "other", "g", maker))

    with pytest.raises(UnsafeStateError, match=r"batch 'other' .* name another one with \?batch="):
        run(database, lambda c: open_batch(c, "other", "g", Origin.HTTP))
    if maker is Origin.LOAD:
        assert run(database, lambda c: open_batch(c, "other", "g", Origin.HTTP, joins=True)) == made
    else:
        with pytest.raises(UnsafeStateError, match="inbox"):
            run(database, lambda c: open_batch(c, "other", "g", Origin.HTTP, joins=True))


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--strict"]])
def test_a_load_into_a_batch_of_the_inbox_is_refused(inbox_batch: Path, more: list[str]) -> None:
    """A load into the inbox's batch is refused; another name is free.

    A foreign task under a line's id would be taken for that line.
    """
    for name in ("reports", "docllm-direct"):
        with pytest.raises(
            UnsafeStateError,
            match=f"batch '{name}' holds tasks of the inbox, whose ids other programs choose; "
            ".* --batch",
        ):
            loading(inbox_batch, "--batch", name, *more)

    assert loading(inbox_batch, "--batch", "mine", *more) == 0


def test_records_without_a_batch_go_into_the_batch_of_the_inbox(database: Database) -> None:
    """The batch for records without a batch name always belongs to the inbox.

    That holds also if a load of an earlier version or reloaded dead letters made it: the inbox must
    not stop.
    """
    for origin in (Origin.LETTERS, Origin.INBOX):
        assert run(database, partial(open_batch, name=direct_batch("g"), group="g", origin=origin))
    with pytest.raises(UnsafeStateError, match="holds tasks of the inbox"):
        run(database, lambda c: own_batch(c, direct_batch("g"), "g", Origin.LOAD))


def test_a_batch_of_a_lost_ledger_takes_the_records_that_its_maker_sends_again(
    database: Database,
) -> None:
    """A batch of a lost ledger takes the rest from a load or from the inbox.

    Nobody knows who made it. Once loaded, it is a load's.
    """
    into = run(database, lambda c: open_batch(c, "b", "g", Origin.LETTERS))
    assert isinstance(into, store.Batch)
    run(database, lambda c: open_batch(c, "b", "g", Origin.INBOX))
    run(database, lambda c: begin_load(c, into))

    assert run(database, lambda c: half_loaded(c, "g")) == ["b"]
    with pytest.raises(UnsafeStateError, match="made by a load"):
        run(database, lambda c: open_batch(c, "b", "g", Origin.INBOX))
    run(database, lambda c: open_batch(c, "b", "g", Origin.LETTERS))


def test_a_note_of_another_version_is_taken_for_a_loads(database: Database) -> None:
    """An origin written by another version counts as a load's, so the inbox adds nothing."""
    assert Origin("something new") is Origin.LOAD


def test_a_record_that_was_refused_stays_refused_when_it_is_replayed(database: Database) -> None:
    """A refused record stays refused when it, or its dead letter, is replayed.

    `replay --disposition rejected` would otherwise be the way round.
    """
    letter = Incoming(
        partition=0,
        offset=0,
        key=b"k",
        value=LINE,
        headers=[("docllm-quarantine", b"1"), ("docllm-batch", b"reports")],
    )
    task = Incoming(
        partition=0,
        offset=1,
        key=b"k",
        value=LINE,
        headers=[("docllm-task", b"1"), ("docllm-batch", b"reports")],
    )
    run(database, lambda c: open_batch(c, "reports", "g"))
    unread: dict[int, str] = {}
    rejected = RejectedRecord(
        topic_id="id",
        topic="g.inbox",
        partition=0,
        offset=0,
        key=b"k",
        value=LINE,
        headers=[("docllm-batch", b"reports")],
        reason="why",
        disposition=Disposition.REJECTED,
    )
    run(database, lambda c: quarantine.keep(c, "g", [rejected]))

    name, new = foreign_records.task_of(
        key=b"k",
        value=LINE,
        headers=[("docllm-batch", b"reports")],
        group="g",
        max_attempts_of=lambda _type: 5,
    )
    run(
        database,
        lambda c: records._accept(
            c, group="g", name=name, numbered_tasks=[(1, new)], reasons=unread, first_id=1
        ),
    )

    assert ["made by a load" in reason for reason in unread.values()] == [True]
    assert (from_topic._origin(letter), from_topic._origin(task)) == (
        Origin.QUARANTINE,
        Origin.LETTERS,
    )


def test_status_shows_the_origin_of_a_batch(inbox_batch: Path) -> None:
    """`status` shows a batch's origin, so nobody takes foreign results for a load's."""
    assert loading(inbox_batch) == 0
    database = Database(ledger_url(load_config(flags={}, environ={}, cwd=inbox_batch)))
    try:
        report = json.loads(
            json.dumps(
                database.run_singly(lambda c: group_status.read_group(c, "docllm")).as_json()
            )
        )
        kept = database.run_singly(lambda c: find_batch(c, "reports"))
    finally:
        database.close()

    assert {batch["name"]: batch["origin"] for batch in report["batches"]} == {
        "reports": "inbox",
        "tasks": "load",
    }
    assert kept is not None
    assert kept.origin is Origin.INBOX
