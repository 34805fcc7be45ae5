"""Pointers to results outside the ledger are stored as results are."""

import asyncio
from collections.abc import Iterator

import pytest

from docllm.agent.ledger.sql_ledger import Executors, SqlLedger
from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Succeeded
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.result.codec import COMPLETION, POINTER
from docllm.schemas.task.result.output_pointer import output_of
from tests.support.ledger_database import GROUP, LONGEST, SPENT, LedgerDatabase, settlement

STORED = (
    output_of(key="a", batch="b", codec=COMPLETION, stored=b"{}")
    .pointer("file:///out/a-1-0.json")
    .stored()
)


@pytest.fixture
def ledger(ledger_db: LedgerDatabase) -> Iterator[SqlLedger]:
    executors = [ThreadExecutor(name) for name in ("claim", "settle", "background")]
    yield SqlLedger(
        database=ledger_db.database,
        group=GROUP,
        clock=SystemClock(),
        executors=Executors(executors[0], executors[1], executors[2]),
        longest_tier=LONGEST,
    )
    for executor in executors:
        executor.close()


def settled(ledger: SqlLedger, ledger_db: LedgerDatabase, key: str, outcome: Succeeded) -> Verdict:
    (task_id,) = ledger_db.load(key)
    owner = ledger_db.agent().next_owner()
    group = [settlement(ledger_db.claimed(task_id, owner), owner, outcome)]
    ((verdict,), _) = asyncio.run(ledger.settle(group))
    return verdict


def test_a_pointer_takes_the_place_of_the_answer(
    ledger: SqlLedger, ledger_db: LedgerDatabase
) -> None:
    """The pointer is one row of the same table, written in the same transaction."""
    outcome = Succeeded(STORED, POINTER, SPENT)

    assert settled(ledger, ledger_db, "a", outcome) is Verdict.SETTLED

    (row,) = ledger_db.rows(tables.task_result)
    assert (row.codec, bytes(row.body), row.tokens_in) == (POINTER, STORED, SPENT.tokens_in)
