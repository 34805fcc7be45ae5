"""Reads a whole group for monitoring: its status, and the sums of all that happened.

Read only. No query in here grows with the number of tasks.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select, text

from docllm.producer.ledger import waiting_rows
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ledger.status import group_status as statuses
from docllm.producer.ledger.status import group_sums
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.group_sums import GroupSums
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import seconds_until
from docllm.schemas.ledger.tables import archive, batch, metadata, task
from docllm.schemas.task.states import WAITING, Status

MAX_QUARANTINED = 100_000  # records of the quarantine that the exporter counts
_ROWS = text(
    "SELECT table_name, table_rows FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_rows IS NOT NULL"
)
# MySQL would answer with figures of up to a day ago.
_FRESH = text("SET SESSION information_schema_stats_expiry = 0")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group at one moment.

    `oldest_due_s` is, by waiting state, how long the task that is due first has been due; 0 if none
    is due. `replaying` are the items of unfinished replays, by state. `rows` is the server's
    estimate of how many rows each table has, of all groups; SQLite makes none. `archived_s` is how
    long ago an archive was last verified, None if none was. `waiting` tasks wait in the ledger.
    """

    status: GroupStatus
    sums: GroupSums
    oldest_due_s: Mapping[Status, float]
    replaying: Counter[ItemState]
    rows: Mapping[str, int] = field(default_factory=dict)
    archived_s: float | None = None
    waiting: int = 0


def read_snapshot(connection: Connection, group: str, route_name: Callable[[str], str]) -> Snapshot:
    """Return a snapshot of a group. `route_name` maps the routes of tasks to a closed set."""
    status = statuses.read_group(connection, group, max_quarantined=MAX_QUARANTINED)
    replaying: Counter[ItemState] = Counter()
    for run in status.replays:
        replaying.update(run.counts)
    return Snapshot(
        status,
        group_sums.read_sums(connection, group, route_name),
        oldest_due_s(connection, group),
        replaying,
        _rows(connection),
        _archived_s(connection, group),
        waiting_rows.count(connection, group),
    )


def oldest_due_s(connection: Connection, group: str) -> dict[Status, float]:
    """Return, by waiting state, how long the task that is due first has been due; 0 if none is.

    One row of each batch is read. A search along all groups' tasks would find none of this group
    behind the older tasks of another.
    """
    oldest_s = {}
    for status in WAITING:
        waiting = select(task.c.due_at).where(
            task.c.batch_id == batch.c.id, task.c.status == int(status)
        )
        # MySQL would sort all waiting tasks of a batch by `due_at` alone.
        in_index_order = waiting.order_by(task.c.batch_id, task.c.status, task.c.due_at)
        first = along_open(in_index_order.limit(1)).scalar_subquery()
        batches = (
            select(first.label("due_at"))
            .where(batch.c.group_name == group, batch.c.archived_at.is_(None))
            .subquery()
        )
        due_in_s = select(func.min(seconds_until(batches.c.due_at)))
        oldest_s[status] = max(0.0, -float(connection.execute(due_in_s).scalar() or 0.0))
    return oldest_s


def _rows(connection: Connection) -> dict[str, int]:
    if connection.dialect.name == "sqlite":
        return {}
    if not getattr(connection.dialect, "is_mariadb", False):
        connection.execute(_FRESH)
    return {name: size for name, size in connection.execute(_ROWS) if name in metadata.tables}


def _archived_s(connection: Connection, group: str) -> float | None:
    verified_in_s = (
        select(func.max(seconds_until(archive.c.verified_at)))
        .join_from(archive, batch, batch.c.id == archive.c.batch_id)
        .where(batch.c.group_name == group)
    )
    newest = connection.execute(verified_in_s).scalar()
    return None if newest is None else max(0.0, -float(newest))
