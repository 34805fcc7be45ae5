"""The ledger without a database answers in the form in which the real one answers."""

import pytest

from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import Outcome
from tests.support.ledger import FakeLedger
from tests.support.ledger_database import (
    DEAD,
    RELEASED,
    RETRY,
    SNOOZE,
    SUCCEEDED,
    LedgerDatabase,
    only_sqlite,
    settlement,
)


@only_sqlite
async def test_a_claim_answers_for_each_record_by_its_task(ledger_db: LedgerDatabase) -> None:
    """A free task is claimed with its row; a record without a task is unknown, without a row."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    records = [ledger_db.record(task_id), ledger_db.record(999_999)]

    real = ledger_db.answers(records, owner)
    _, row = real[task_id]
    fake = await FakeLedger({task_id: (ClaimAnswer.CLAIMED, row)}).claim(records, owner, 600.0)

    assert fake == real
    assert real[999_999] == (ClaimAnswer.UNKNOWN, None)


@only_sqlite
@pytest.mark.parametrize("outcome", [SUCCEEDED, RETRY, SNOOZE, DEAD, RELEASED])
async def test_a_settle_has_a_verdict_for_each_outcome(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """The fake accepts each settlement, as the ledger does while the claim is the task's."""
    ids = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    page = [settlement(ledger_db.claimed(task_id, owner), owner, outcome) for task_id in ids]

    verdicts, _ = ledger_db.settle_all(page)
    accepted, orders = await FakeLedger().settle(page)

    assert (accepted, orders) == ([Verdict.SETTLED] * len(ids), [])
    assert verdicts == accepted
