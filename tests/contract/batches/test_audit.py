"""Every order of a person is in the audit, with its group, its object and its size."""

from typing import Any

from docllm.producer.ledger import audit, cancel, long_waits
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.dead_letters import reopen
from docllm.schemas.ledger import tables
from tests.contract.support.ledger_dead import dead, request, stored
from tests.support.ledger_database import BATCH, GROUP, LedgerDatabase


def entries(ledger_db: LedgerDatabase) -> list[tuple[Any, ...]]:
    """Return the rows of the audit, without time, actor and detail."""
    return [
        (row.group_name, row.action, row.kind, row.object, row.items, row.origin)
        for row in ledger_db.rows(tables.audit)
    ]


def test_each_order_names_its_object(ledger_db: LedgerDatabase) -> None:
    """A replay has the number of its items, a cancelled task counts as one."""
    dead(ledger_db, "a", "b")
    (waiting,) = ledger_db.load("c")
    run = stored(ledger_db, request())
    assert run is not None
    ledger_db.call(cancel.cancel_one, key=b"c", group=GROUP, batch_id=None, actor="ann")
    ledger_db.cancel()
    batch = ledger_db.batch()
    ledger_db.call(reopen.reopen, batch, "ann")
    ledger_db.call(long_waits.resume, GROUP, "slow", "ann")

    assert entries(ledger_db) == [
        (GROUP, "replay", "replay", str(run.id), 2, "cli"),
        (GROUP, "cancel", "task", str(waiting), 1, "cli"),
        (GROUP, "cancel", "batch", BATCH, 0, "cli"),
        (GROUP, "reopen", "batch", BATCH, 0, "cli"),
        (GROUP, "resume", "route", "slow", 0, "cli"),
    ]


def test_what_agents_decide_is_told_from_orders_of_people(ledger_db: LedgerDatabase) -> None:
    """Long texts are cut to what the columns hold."""
    for actor in ("ann" * 99, audit.AGENT):
        ledger_db.call(
            audit.write,
            group=GROUP,
            actor=actor,
            action="guard open",
            kind=AuditKind.GUARD,
            target="k" * 500,
            detail="d" * 5000,
        )

    first, second = ledger_db.rows(tables.audit)
    assert (first.origin, second.origin) == ("cli", "agent")
    assert (len(first.actor), len(first.object), len(first.detail)) == (191, 191, 2000)
