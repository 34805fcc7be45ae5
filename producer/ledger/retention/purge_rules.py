"""Reads which batches may be purged, and why others may not. Changes nothing."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, select

from docllm.producer.ledger import outbox, tally
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_rows import last_change
from docllm.producer.ledger.store import require_batch
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.task.record.topics import RESULTS
from docllm.schemas.task.states import FINAL, Status
from docllm.schemas.text.wording import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Purgeable:
    """A batch as a purge sees it. Times are UTC without a zone.

    `counts` are its final tasks by state. `changed_at` is when a task last changed its state, or
    when the batch was made, if that is later. `verified_at` is when its newest archive was found
    whole, at `archived_to`, and `archive_digest` is the SHA-256 of its manifest; `is_archived` says
    whether no task has changed since that archive began. `is_purging` says whether a purge of it
    has begun: then it cannot be archived again.
    """

    id: int
    name: str
    group: str
    counts: dict[Status, int]
    changed_at: datetime
    verified_at: datetime | None
    archived_to: str
    archive_digest: bytes | None
    is_archived: bool
    is_purging: bool
    purged_at: datetime | None

    @property
    def options(self) -> str:
        """The options that name the batch in a command for a person."""
        return f"--batch {shlex.quote(self.name)} --group {self.group}"

    @property
    def tasks(self) -> int:
        """How many final tasks the batch has had."""
        return sum(self.counts.values())


def find(connection: Connection, group: str, name: str) -> Purgeable | None:
    """Return the batch of this name, None if the group has none."""
    return next(_read(connection, group, batch.c.name == name), None)


def unchanged_since(connection: Connection, group: str, before: datetime) -> list[Purgeable]:
    """Return the batches that are not purged and have not changed since `before`, oldest first."""
    candidates = _read(
        connection,
        group,
        batch.c.purged_at.is_(None),
        batch.c.created_at < before,
    )
    return [target for target in candidates if target.changed_at < before]


def refusal(connection: Connection, target: Purgeable, *, unarchived: bool) -> str:
    """Return why the batch may not be purged now, and what to do; empty if it may be."""
    named = target.group, target.name
    current = find(connection, *named)
    if current is None or current.id != target.id:
        return "it no longer exists"
    if reason := archive_rows.refusal(connection, require_batch(connection, *named)):
        return reason
    if unsent := _unsent(connection, target):
        return (
            f"records of {number_of(unsent, 'ended task')} of it are not on their topics yet; "
            "agents send them within a minute"
        )
    if current.is_archived or unarchived:
        return ""
    since = " since it changed" if current.verified_at else ""
    return (
        f"it was not archived{since}; run: docllm archive {target.options} "
        "--to DIR, or name it with --unarchived to lose what is deleted"
    )


def _read(
    connection: Connection, group: str, *conditions: ColumnElement[bool]
) -> Iterator[Purgeable]:
    query = select(batch).where(batch.c.group_name == group, *conditions).order_by(batch.c.id)
    for row in connection.execute(query).all():
        last = last_change(connection, row.id)
        newest = archive_rows.newest(connection, [row.id]).get(row.id)
        yield Purgeable(
            id=row.id,
            name=row.name,
            group=row.group_name,
            counts=_final_counts(connection, row.id),
            changed_at=max(last, row.created_at),
            verified_at=None if newest is None else newest.verified_at,
            archived_to="" if newest is None else newest.uri,
            archive_digest=None if newest is None else newest.digest,
            is_archived=newest is not None and newest.created_at >= last,
            is_purging=row.purging_at is not None,
            purged_at=row.purged_at,
        )


def _final_counts(connection: Connection, batch_id: int) -> dict[Status, int]:
    batch_counts = tally.counts(
        lambda column: [column["batch_id"] == batch_id, column["state"].in_(FINAL)]
    ).c
    sums = select(batch_counts.state, func.sum(batch_counts.delta)).group_by(batch_counts.state)
    return {Status(state): int(count) for state, count in connection.execute(sums) if count}


def _unsent(connection: Connection, target: Purgeable) -> int:
    """Return of how many tasks the dead letter, or the result's line, is ordered and not sent."""
    first_id, last_id = id_range(connection, target.id)
    ordered = outbox.ordered(connection, target.group, "dlq", RESULTS)
    near = sorted(task_id for task_id in ordered if first_id <= task_id <= last_id)
    own = select(func.count()).where(task.c.id.in_(near), task.c.batch_id == target.id)
    return connection.execute(own).scalar_one() if near else 0
