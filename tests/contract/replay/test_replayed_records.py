"""A quarantined record is read again by today's rules and becomes a task, once."""

import asyncio
from collections.abc import Sequence

import pytest

from docllm.producer.ledger import batch_options, replay_progress, store
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.ledger.outbox import TASK, unpack
from docllm.producer.ledger.replay_progress import ItemState, ReplayRun
from docllm.producer.ledger.store import Origin
from docllm.producer.loading import foreign_records
from docllm.producer.loading.foreign_records import ReadLine
from docllm.producer.replay import records
from docllm.producer.replay import runs as stored_runs
from docllm.producer.replay.runs import Page
from docllm.schemas.ledger import tables
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.task.states import Status
from tests.contract.replay.replays import Site
from tests.contract.support.ledger_dead import counts, delivered, request, set_aside, stored
from tests.support.ledger_database import GROUP, LedgerDatabase

DIRECT = f"{GROUP}-direct"


def line(key: str, prompt: str = "Say hello") -> bytes:
    return b'{"id":"%s","prompt":"%s"}' % (key.encode(), prompt.encode())


def read(ledger_db: LedgerDatabase, run: ReplayRun, after: int, size: int) -> dict[int, ReadLine]:
    """Read the next records of a run."""
    rows = ledger_db.call(records.kept, run.id, after, size)
    return asyncio.run(Site(ledger_db).applier.read(rows))


def applied(
    ledger_db: LedgerDatabase, run: ReplayRun | None, size: int = 50, *, joins: bool = False
) -> tuple[list[Page], dict[ItemState, int]]:
    """Apply the records of a run; return its pages and its counts."""
    assert run is not None
    pages: list[Page] = []
    after = 0
    while lines := read(ledger_db, run, after, size):
        first_id = ledger_db.call(store.take_ids, len(lines))
        pages.append(ledger_db.call(records.apply, GROUP, run.id, lines, first_id, joins=joins))
        after = pages[-1].last
    ledger_db.call(stored_runs.end, run.id)
    stored_run = ledger_db.call(replay_progress.find, run.id)
    assert stored_run is not None
    return pages, stored_run.counts


def replayed(
    ledger_db: LedgerDatabase, dispositions: Sequence[str] = ("undecodable", "rejected")
) -> tuple[dict[int, str], dict[ItemState, int]]:
    """Replay the quarantine; return the records that stay with the reason, and the counts."""
    run = stored(ledger_db, request(dispositions=tuple(dispositions)))
    assert run is not None
    _, states = applied(ledger_db, run)
    return dict(ledger_db.call(replay_progress.unread, run.id, 99)), states


def test_a_record_that_can_be_read_now_becomes_a_task(ledger_db: LedgerDatabase) -> None:
    """The task is in the group's own batch, with the record's key, value and headers.

    It is ordered and counted as any other task; the quarantine row says when.
    """
    (quarantine_id,) = set_aside(ledger_db, line("a"), headers=[("h", b"v")])

    unread, states = replayed(ledger_db)

    (task,) = ledger_db.rows(tables.task)
    (body,) = ledger_db.rows(tables.task_input)
    (order,) = ledger_db.rows(tables.outbox)
    (row,) = ledger_db.rows(tables.quarantine)
    assert (unread, states) == ({}, {ItemState.REPLAYED: 1})
    assert (task.task_key, task.status, ledger_db.batch(DIRECT).id) == (
        b"a",
        Status.PENDING,
        task.batch_id,
    )
    assert (body.body, body.raw_key, body.headers) == (line("a"), b"key", b'[["h","v"]]')
    assert (order.destination, unpack(order.items)) == ("tasks", ((TASK, task.id, 0),))
    assert counts(ledger_db) == {"total": 1, "pending": 1}
    assert row.id == quarantine_id
    assert row.replayed_at is not None


def test_a_record_goes_into_the_batch_that_it_names(ledger_db: LedgerDatabase) -> None:
    """The batch is the same as in the intake."""
    set_aside(ledger_db, line("a"), headers=[("docllm-batch", "n\u00e4cht".encode())])

    replayed(ledger_db)

    assert ledger_db.rows(tables.task)[0].batch_id == ledger_db.batch("n\u00e4cht").id


def test_a_record_that_is_still_no_task_stays_quarantined(ledger_db: LedgerDatabase) -> None:
    """The row is unchanged and its reason is reported; the other records become tasks."""
    bad, good, none = set_aside(ledger_db, b"garbage", line("a"), None)

    unread, states = replayed(ledger_db)

    assert states == {ItemState.REPLAYED: 1, ItemState.UNREAD: 2}
    assert "is not JSON" in unread[bad]
    assert "is missing" in unread[none]
    assert [row.replayed_at is None for row in ledger_db.rows(tables.quarantine)] == [
        True,
        False,
        True,
    ]
    assert good not in unread


def test_a_decoder_that_was_repaired(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that was refused once is taken when the rules have changed.

    Until then each replay reports why it is refused.
    """

    def refuse(_value: bytes) -> None:
        raise LineError("id", "is in Chinese", "wait for a later version")

    (quarantine_id,) = set_aside(ledger_db, line("a"))
    with monkeypatch.context() as broken:
        broken.setattr(foreign_records, "parse", refuse)
        assert replayed(ledger_db)[0] == {
            quarantine_id: "id is in Chinese; wait for a later version"
        }

    assert replayed(ledger_db)[0] == {}
    assert ledger_db.count(tables.task) == 1


def test_replaying_twice_makes_one_task(ledger_db: LedgerDatabase) -> None:
    """A replayed record is not selected again, and two runs with one record make one task."""
    set_aside(ledger_db, line("a"))
    runs = [stored(ledger_db, request(dispositions=("undecodable",))) for _ in range(2)]

    assert [applied(ledger_db, run)[1] for run in runs] == [
        {ItemState.REPLAYED: 1},
        {ItemState.SKIPPED: 1},
    ]
    assert stored(ledger_db, request(dispositions=("undecodable",))) is None
    assert ledger_db.count(tables.task) == 1


def test_a_record_of_an_existing_task_makes_no_second_task(ledger_db: LedgerDatabase) -> None:
    """A record is finished and makes no new task if its line was loaded since.

    The same holds for a record that is twice in one page.
    """
    set_aside(ledger_db, line("a"), line("a"))

    unread, states = replayed(ledger_db)

    assert (unread, states) == ({}, {ItemState.REPLAYED: 2})
    assert ledger_db.count(tables.task) == 1


def test_a_known_id_with_other_content_stays(ledger_db: LedgerDatabase) -> None:
    """The batch has that task with other bytes: the record is reported and left."""
    set_aside(ledger_db, line("a"))
    replayed(ledger_db)
    delivered(ledger_db)
    (quarantine_id,) = set_aside(ledger_db, line("a", "Say goodbye"), disposition="rejected")

    unread, _ = replayed(ledger_db)

    assert unread == {quarantine_id: f"its id is in batch '{DIRECT}' with other content"}
    assert ledger_db.count(tables.outbox) == 0


def test_a_batch_that_takes_no_tasks(ledger_db: LedgerDatabase) -> None:
    """A record stays, with the reason, if its batch is cancelled, another group's or loaded."""
    ledger_db.batch("closed", origin=Origin.INBOX)
    ledger_db.cancel("closed")
    ledger_db.batch("theirs", "other")
    ledger_db.batch("loaded")
    names = (b"closed", b"theirs", b"loaded")
    closed, theirs, loaded = (
        set_aside(ledger_db, line("a"), headers=[("docllm-batch", name)])[0] for name in names
    )

    unread, _ = replayed(ledger_db)

    assert "was cancelled" in unread[closed]
    assert "belongs to group 'other'" in unread[theirs]
    assert "batch 'loaded' was made by a load and takes no record of the inbox" in unread[loaded]
    assert ledger_db.count(tables.task) == 0


def test_a_value_that_was_cut_is_not_taken_for_the_whole(ledger_db: LedgerDatabase) -> None:
    """A cut value is refused even if its beginning is a valid line.

    The error says where the whole record is.
    """
    (quarantine_id,) = set_aside(ledger_db, line("a") + b" " * MAX_TASK_BYTES)

    unread, _ = replayed(ledger_db)

    assert "more than the 3 MiB that a task may have, and was cut" in unread[quarantine_id]
    assert "group.inbox/0/0" in unread[quarantine_id]
    assert ledger_db.count(tables.task) == 0


def test_one_record_by_its_number(ledger_db: LedgerDatabase) -> None:
    """No other record is replayed."""
    _, second = set_aside(ledger_db, line("a"), line("b"))

    _, states = applied(ledger_db, stored(ledger_db, request(record=second)))

    assert states == {ItemState.REPLAYED: 1}
    assert [row.task_key for row in ledger_db.rows(tables.task)] == [b"b"]


def test_pages_of_records_follow_one_another(ledger_db: LedgerDatabase) -> None:
    """No record is left out, and none is taken twice."""
    set_aside(ledger_db, *(line(f"k{number}") for number in range(5)))

    pages, states = applied(
        ledger_db, stored(ledger_db, request(dispositions=("undecodable",))), size=2
    )

    assert ([page.done for page in pages], states) == ([2, 2, 1], {ItemState.REPLAYED: 5})
    assert ledger_db.count(tables.task) == 5


def test_a_page_whose_answer_was_lost_leaves_the_ids_to_its_tasks(
    ledger_db: LedgerDatabase,
) -> None:
    """The second try visits no record, so that none is taken for a task of the first try."""
    set_aside(ledger_db, line("a"), line("b"))
    run = stored(ledger_db, request(dispositions=("undecodable",)))
    assert run is not None
    lines = read(ledger_db, run, 0, 1)
    first_id = ledger_db.call(store.take_ids, 1)

    first, again = (ledger_db.call(records.apply, GROUP, run.id, lines, first_id) for _ in range(2))
    assert first is not None
    _, states = applied(ledger_db, run, size=1)

    assert (first.done, again.done, states) == (1, 0, {ItemState.REPLAYED: 2})
    assert [row.task_key for row in ledger_db.rows(tables.task)] == [b"a", b"b"]


def test_a_record_that_joins_a_loaded_batch_takes_its_tenant(ledger_db: LedgerDatabase) -> None:
    into = ledger_db.batch("loaded")
    ledger_db.call(batch_options.set_defaults, into.id, TaskDefaults(tenant="acme"))
    set_aside(ledger_db, line("a"), headers=[("docllm-batch", b"loaded")])
    run = stored(ledger_db, request(dispositions=("undecodable",)))

    applied(ledger_db, run, joins=True)

    assert [row.tenant for row in ledger_db.rows(tables.task)] == ["acme"]


def test_two_batches_of_one_page_share_its_ids(ledger_db: LedgerDatabase) -> None:
    set_aside(ledger_db, line("a"), line("b"))
    set_aside(ledger_db, line("a"), headers=[("docllm-batch", b"other")])

    assert replayed(ledger_db) == ({}, {ItemState.REPLAYED: 3})
    assert ledger_db.count(tables.task) == 3
