"""The history of every row, kept by triggers in the transaction that changes it.

docllm does not know these triggers.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Executable, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Row

from docllm.schemas.ledger.tables import tally
from tests.integration.support.ledgers import engine
from tests.invariants.counted import COLUMNS


def _kind(column: str) -> str:
    return str(tally.c[column].type.compile(mysql.dialect()))


# The recorded events, by the database's clock. A change that does not concern a task's state is not
# recorded.
_TABLES = {
    "fault_move": (
        "task_id BIGINT, old_status TINYINT, status TINYINT, old_owner BIGINT, owner BIGINT, "
        "old_fence INT, fence INT, old_due DATETIME(6), losses INT, attempts INT, replays INT"
    ),
    "fault_verdict": "agent_id BIGINT, seen_at DATETIME(6)",
    "fault_order": "order_id BIGINT, change_of CHAR(1), destination VARCHAR(100), items MEDIUMBLOB",
    "fault_count": ", ".join(f"{name} {_kind(name)}" for name in COLUMNS),
    "fault_guard": (
        "guard_id BIGINT, batch_id BIGINT, type VARCHAR(64), route VARCHAR(64), "
        "cause VARCHAR(32), raised TINYINT"
    ),
    "fault_look": "guard_id BIGINT",
}
_TRIGGERS = {
    "AFTER INSERT ON task": (
        "INSERT INTO fault_move VALUES (NULL, UTC_TIMESTAMP(6), NEW.id, NULL, NEW.status, "
        "0, NEW.owner, 0, NEW.fence, NEW.due_at, 0, 0, 0)"
    ),
    "AFTER UPDATE ON task": (
        "IF NOT (OLD.status = NEW.status AND OLD.owner = NEW.owner AND OLD.fence = NEW.fence) "
        "THEN INSERT INTO fault_move VALUES (NULL, UTC_TIMESTAMP(6), NEW.id, OLD.status, "
        "NEW.status, OLD.owner, NEW.owner, OLD.fence, NEW.fence, OLD.due_at, "
        "NEW.lease_losses - OLD.lease_losses, NEW.attempt - OLD.attempt, "
        "NEW.replays - OLD.replays); END IF"
    ),
    "AFTER UPDATE ON agent": (
        "IF OLD.lost_at IS NULL AND NEW.lost_at IS NOT NULL THEN "
        "INSERT INTO fault_verdict VALUES (NULL, UTC_TIMESTAMP(6), NEW.id, OLD.seen_at); END IF"
    ),
    "AFTER INSERT ON outbox": (
        "INSERT INTO fault_order VALUES "
        "(NULL, UTC_TIMESTAMP(6), NEW.id, '+', NEW.destination, NEW.items)"
    ),
    "AFTER UPDATE ON outbox": (
        "IF OLD.items <> NEW.items THEN INSERT INTO fault_order VALUES "
        "(NULL, UTC_TIMESTAMP(6), NEW.id, '=', NEW.destination, NEW.items); END IF"
    ),
    "AFTER DELETE ON outbox": (
        "INSERT INTO fault_order VALUES (NULL, UTC_TIMESTAMP(6), OLD.id, '-', OLD.destination, '')"
    ),
    "AFTER INSERT ON tally": (
        "INSERT INTO fault_count VALUES (NULL, UTC_TIMESTAMP(6), "  # noqa: S608 - constants
        + ", ".join(f"NEW.{name}" for name in COLUMNS)
        + ")"
    ),
    "AFTER INSERT ON guard": (
        "INSERT INTO fault_guard VALUES (NULL, UTC_TIMESTAMP(6), NEW.id, NEW.batch_id, "
        "NEW.type, NEW.route, NEW.cause, NEW.opened_at IS NULL)"
    ),
    "AFTER UPDATE ON guard": (
        "IF (OLD.opened_at IS NULL) <> (NEW.opened_at IS NULL) THEN "
        "INSERT INTO fault_guard VALUES (NULL, UTC_TIMESTAMP(6), NEW.id, NEW.batch_id, "
        "NEW.type, NEW.route, NEW.cause, NEW.opened_at IS NULL); END IF"
    ),
    "AFTER INSERT ON guard_look": (
        "INSERT INTO fault_look VALUES (NULL, UTC_TIMESTAMP(6), NEW.guard_id)"
    ),
}


def install(url: str) -> None:
    """Start to record a ledger's history."""
    with engine(url).begin() as connection:
        for table, columns in _TABLES.items():
            connection.execute(
                text(
                    f"CREATE TABLE {table} (seq BIGINT PRIMARY KEY AUTO_INCREMENT, "
                    f"at DATETIME(6), {columns}) ENGINE=InnoDB"
                )
            )
        for number, (event, statement) in enumerate(_TRIGGERS.items()):
            connection.execute(
                text(f"CREATE TRIGGER fault_{number} {event} FOR EACH ROW BEGIN {statement}; END")
            )


def read(url: str, table: str) -> Iterable[Row[Any]]:
    """Return the recorded history, in order."""
    return rows(url, text(f"SELECT * FROM {table} ORDER BY seq"))  # noqa: S608 - our own tables


def rows(url: str, query: Executable) -> Iterable[Row[Any]]:
    """Yield the rows of a query without holding them all."""
    with engine(url).connect() as connection:
        yield from connection.execution_options(yield_per=10_000).execute(query)


def seconds(moment: datetime) -> float:
    """Return a database time in seconds since 1970."""
    return moment.replace(tzinfo=UTC).timestamp()
