"""Notes beside results: written with the settle, counted, exported, and gone with their result."""

import io
from dataclasses import replace
from typing import Any

import orjson

from docllm.agent.ledger.counts.compaction import CompactionLimits, compact
from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Succeeded
from docllm.producer.ledger.results.export import ALL, export
from docllm.producer.ledger.results.result_lines import docllm_line
from docllm.producer.ledger.retention import erasure_rows
from docllm.producer.ledger.status import batch_status, group_sums
from docllm.schemas.ledger import tables
from docllm.schemas.task.result.notes import NoteKind, Notes
from tests.support.ledger_database import (
    GROUP,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
    settlement,
)

OMITTED: Notes = ((NoteKind.OMITTED, ("page 3", "altChunk 1")),)
CUT: Notes = ((NoteKind.TRUNCATED_INPUT, ()),)


def with_notes(notes: Notes) -> Succeeded:
    return replace(SUCCEEDED, notes=notes)


def settled(ledger_db: LedgerDatabase, **notes: Notes) -> dict[str, int]:
    """Settle one success for each key; return the tasks' ids."""
    ids = dict(zip(notes, ledger_db.load(*notes), strict=True))
    agent = ledger_db.agent()
    settlements = []
    for key, of_key in notes.items():
        owner = agent.next_owner()
        row = ledger_db.claimed(ids[key], owner)
        settlements.append(settlement(row, owner, with_notes(of_key)))
    verdicts, _ = ledger_db.settle_all(settlements)
    assert set(verdicts) == {Verdict.SETTLED}
    return ids


def exported(ledger_db: LedgerDatabase) -> dict[str, dict[str, Any]]:
    output = io.BytesIO()
    export(ledger_db.run, {ledger_db.batch().id: ALL}, docllm_line, output.write)
    return {line["id"]: line for line in map(orjson.loads, output.getvalue().splitlines())}


def counted(ledger_db: LedgerDatabase) -> dict[str, int]:
    (status,) = ledger_db.call(batch_status.read_batches, GROUP)
    return status.notes


def test_notes_are_settled_counted_and_exported(ledger_db: LedgerDatabase) -> None:
    """A note is a field of its result's line; a result without one has no such field."""
    ids = settled(ledger_db, a=OMITTED, b=(), c=OMITTED + CUT)

    lines = exported(ledger_db)
    assert lines["a"]["omitted"] == lines["c"]["omitted"] == ["page 3", "altChunk 1"]
    assert lines["c"]["truncated_input"] is True
    assert "truncated_input" not in lines["a"]
    assert "omitted" not in lines["b"]
    assert {row.task_id for row in ledger_db.rows(tables.result_note)} == {ids["a"], ids["c"]}
    assert counted(ledger_db) == {"omitted": 2, "truncated_input": 1}


def test_counts_of_notes_survive_compaction_and_are_no_attempts(ledger_db: LedgerDatabase) -> None:
    """The counts of notes are rolled up with the others, and no sum of tasks has them."""
    settled(ledger_db, a=OMITTED, b=CUT, c=())
    (before,) = ledger_db.call(batch_status.read_batches, GROUP)

    ledger_db.ago(tables.tally.c.created_at, 3600)
    ledger_db.call(compact, CompactionLimits())

    (after,) = ledger_db.call(batch_status.read_batches, GROUP)
    assert (before.notes, before.counts) == (after.notes, after.counts)
    assert after.counts["total"] == after.counts["succeeded"] == 3
    sums = ledger_db.call(group_sums.read_sums, GROUP, str)
    assert sum(sums.attempts.values()) == 3
    assert (sums.loaded, sums.open) == (3, 0)


def test_a_page_without_notes_runs_no_statement_for_them(ledger_db: LedgerDatabase) -> None:
    with ledger_db.statements() as statements:
        settled(ledger_db, a=(), b=())

    assert not [text for text in statements if "result_note" in text]


def test_only_an_accepted_success_has_notes(ledger_db: LedgerDatabase) -> None:
    """A settle that is repeated writes them once, and one of a claim that has ended writes none."""
    (task_id,) = ledger_db.load("a")
    agent = ledger_db.agent()
    first, second = agent.next_owner(), agent.next_owner()
    row = ledger_db.claimed(task_id, first)
    ledger_db.settle(row, first, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1)
    again = ledger_db.claimed(task_id, second, fence=1)

    assert ledger_db.settle(row, first, with_notes(CUT)) is Verdict.RETRIED
    assert ledger_db.rows(tables.result_note) == []
    for _ in range(2):
        assert ledger_db.settle(again, second, with_notes(OMITTED)) is Verdict.SETTLED
    assert [row.kind for row in ledger_db.rows(tables.result_note)] == [NoteKind.OMITTED]
    assert counted(ledger_db) == {"omitted": 1}


def test_an_erasure_deletes_the_notes_of_its_tasks_alone(ledger_db: LedgerDatabase) -> None:
    ids = settled(ledger_db, a=OMITTED, b=CUT)

    ledger_db.call(erasure_rows.erase, GROUP, [ids["a"]], tenant=False)

    assert [row.task_id for row in ledger_db.rows(tables.result_note)] == [ids["b"]]
    (erased,) = (line for key, line in exported(ledger_db).items() if key != "b")
    assert (erased["result"], "omitted" in erased) == (None, False)
