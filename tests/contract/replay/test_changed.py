"""What a replay changes of tasks: a new document is written with its digest, overrides beside."""

import orjson

from docllm.agent.ports import ClaimAnswer
from docllm.producer.ledger import replay_progress, store, task_changes
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.replay import runs, tasks
from docllm.producer.replay.runs import Cursor, Documents
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import digest
from tests.contract.support.ledger_dead import killed
from tests.support.ledger_database import GROUP, LedgerDatabase, new_task

OLD = {"uri": "file:///docs/a.pdf", "size": 1, "sha256": "0" * 64}
NEW = {"size": 2, "sha256": "1" * 64}


def line(source: object) -> bytes:
    return orjson.dumps({"id": "a", "prompt": "Read {document}", "input": source})


def dead_with_document(ledger_db: LedgerDatabase) -> int:
    """Load a task with a document, and let it die."""
    accepted = ledger_db.accept([new_task("a", line(OLD))], ledger_db.batch())
    (task_id,) = accepted.new.values()
    killed(ledger_db, task_id)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    return task_id


def replay(
    ledger_db: LedgerDatabase, request: ReplayRequest, documents: Documents | None = None
) -> None:
    run_id = ledger_db.call(runs.begin, GROUP, "ann", request)
    assert ledger_db.call(runs.store, GROUP, run_id, request, Cursor(), documents) is None
    run = ledger_db.call(replay_progress.find, run_id)
    assert run is not None
    ledger_db.call(tasks.apply, GROUP, run_id, run.request, 0, 500)


def test_a_record_of_before_a_new_document_is_stale(ledger_db: LedgerDatabase) -> None:
    """A record with the former line has a lower fence; any other line is foreign still."""
    task_id = dead_with_document(ledger_db)
    news = Documents({task_id: orjson.dumps(NEW).decode()})

    replay(ledger_db, ReplayRequest(Selection(), refreshes=True), news)

    fence = ledger_db.task(task_id).fence
    present = line({"uri": OLD["uri"], **NEW})
    records = {
        ClaimAnswer.STALE: ledger_db.record(task_id, fence - 1, stamp=digest(b"a", line(OLD))),
        ClaimAnswer.CONFLICT: ledger_db.record(task_id, fence - 1, stamp=digest(b"a", b"other")),
        ClaimAnswer.CLAIMED: ledger_db.record(task_id, fence, stamp=digest(b"a", present)),
    }
    owner = ledger_db.agent().next_owner()
    answers = [ledger_db.answers([record], owner)[task_id][0] for record in records.values()]
    assert answers == list(records)
    (row,) = ledger_db.rows(tables.task_input)
    assert bytes(row.body) == present
    details = [row.detail for row in ledger_db.rows(tables.audit) if row.kind == "task"]
    assert len(details) == 1
    assert OLD["sha256"] in details[0]
    assert NEW["sha256"] in details[0]


def test_a_task_without_a_usable_document_stays_dead(ledger_db: LedgerDatabase) -> None:
    task_id = dead_with_document(ledger_db)
    request = ReplayRequest(Selection(), refreshes=True)
    run_id = ledger_db.call(runs.begin, GROUP, "ann", request)

    ledger_db.call(
        runs.store, GROUP, run_id, request, Cursor(), Documents(unusable={task_id: "is gone"})
    )

    assert ledger_db.count(tables.replay_run) == 0, "a run without items is dropped"


def test_a_later_change_keeps_the_earlier_ones(ledger_db: LedgerDatabase) -> None:
    """The stored line stays, so that the same load is recognized."""
    task_id = dead_with_document(ledger_db)
    replay(ledger_db, ReplayRequest(Selection(), nonce="1", overrides={"prompt": "A {document}"}))
    killed(ledger_db, task_id)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    replay(ledger_db, ReplayRequest(Selection(), nonce="2", overrides={"model": "m"}))

    overrides = ledger_db.call(task_changes.overrides, [task_id])

    assert overrides == {task_id: {"prompt": "A {document}", "model": "m"}}
    again = ledger_db.call(store.matching, ledger_db.batch(), [new_task("a", line(OLD))])
    assert again.known == (0,)
