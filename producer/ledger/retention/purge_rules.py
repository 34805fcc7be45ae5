"""Reads which batches may be purged, and why others may not. Changes nothing."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from docllm.producer.ledger import audit, outbox, tally
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_rows import (
    last_change,
    open_task,
    raised_guard,
    waiting_hook,
)
from docllm.producer.ledger.store import Origin, direct_batch
from docllm.schemas.ledger.tables import (
    batch,
    replay_item,
    replay_run,
    task,
)
from docllm.schemas.task.states import FINAL, Status
from docllm.schemas.text.wording import number_of


class Keep(StrEnum):
    """What a purge leaves of a batch; each value leaves less than the one before it."""

    RESULTS = "results"  # the inputs of tasks that are not dead go
    DEAD = "dead"  # their results go too
    ROWS = "rows"  # the inputs of dead tasks go too, so none can be replayed
    NOTHING = "nothing"

    @property
    def ends_replays(self) -> bool:
        """Whether no task of the batch can be replayed afterwards."""
        return self in {Keep.ROWS, Keep.NOTHING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purgeable:
    """A batch as a purge sees it. Times are UTC without a zone.

    `counts` are its final tasks by state. `changed_at` is when a task last changed its state, or
    when the batch was made, if that is later. `verified_at` is when its newest archive was found
    whole, at `archived_to`, and `archive_digest` is the SHA-256 of its manifest; `is_archived` says
    whether no task has changed since that archive began. `is_emptied` says whether a purge of it
    has begun, be it of inputs only: then it cannot be archived again.
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
    is_emptied: bool
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


def refusals(
    connection: Connection, target: Purgeable, keep: Keep, *, unarchived: bool
) -> list[str]:
    """Return in words why the batch may not be purged now, and what to do; empty if it may be."""
    current = find(connection, target.group, target.name)
    if current is None or current.id != target.id:
        return ["it no longer exists"]
    reasons = [*_busy(connection, target, keep)]
    if not current.is_archived and not unarchived:
        since = " since it changed" if current.verified_at else ""
        reasons.append(
            f"it was not archived{since}; run: docllm archive {target.options} "
            "--to DIR, or name it with --unarchived to lose what is deleted"
        )
    return reasons


def _read(
    connection: Connection, group: str, *conditions: ColumnElement[bool]
) -> Iterator[Purgeable]:
    query = select(batch).where(batch.c.group_name == group, *conditions).order_by(batch.c.id)
    rows = connection.execute(query).all()
    if not rows:
        return
    since = min(row.created_at for row in rows)
    begun = audit.targets(connection, group, audit.PURGE, since=since)
    for row in rows:
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
            is_emptied=archive_rows.is_emptied(row, begun),
            purged_at=row.purged_at,
        )


def _final_counts(connection: Connection, batch_id: int) -> dict[Status, int]:
    batch_counts = tally.counts(
        lambda column: [column["batch_id"] == batch_id, column["state"].in_(FINAL)]
    ).c
    sums = select(batch_counts.state, func.sum(batch_counts.delta)).group_by(batch_counts.state)
    return {Status(state): int(count) for state, count in connection.execute(sums) if count}


def _busy(connection: Connection, target: Purgeable, keep: Keep) -> Iterator[str]:
    """Yield what works with the batch."""
    row = connection.execute(select(batch).where(batch.c.id == target.id)).one()
    if keep.ends_replays and row.name == direct_batch(target.group):
        yield (
            "it receives the inbox records that name no batch, at any time; let the sending "
            "programs name a batch, for example one for each day"
        )
    if row.closed_at is None and row.note == Origin.LOAD.value and row.cancelled_at is None:
        yield "its load has not ended; if none is running, start the same load again"
    if _any(connection, open_task(target.id)):
        yield f"not all of its tasks are final; see: docllm status {target.options}"
    if _any(connection, raised_guard(target.id)):
        name = f"{shlex.quote(row.name)} --group {target.group}"
        yield f"a guard holds it back; run: docllm guard open {name}"
    ids = id_range(connection, target.id)
    if _any(connection, _replayed(target, ids)):
        resume = f"docllm replay --resume --group {target.group}"
        yield f"a replay has tasks of it; run: {resume}"
    if _any(connection, waiting_hook(connection, target.id)):
        yield "hooks of its tasks have not run; agents whose settings name them run them"
    if unsent := _unsent(connection, target, ids):
        yield (
            f"{number_of(unsent, 'dead letter')} of it are not on their topic yet; "
            "agents send them within a minute"
        )


def _any(connection: Connection, query: Any) -> bool:
    return connection.execute(query.limit(1)).first() is not None


def _replayed(target: Purgeable, ids: tuple[int, int]) -> Any:
    """Return the query for tasks of the batch that wait in a replay."""
    return (
        select(replay_item.c.item_id)
        .join(replay_run, replay_run.c.id == replay_item.c.run_id)
        .join(task, task.c.id == replay_item.c.item_id)
        .where(
            replay_run.c.group_name == target.group,
            replay_run.c.ended_at.is_(None),
            replay_item.c.kind == outbox.TASK,
            replay_item.c.state == int(ItemState.WAITS),
            replay_item.c.item_id.between(*ids),
            task.c.batch_id == target.id,
        )
    )


def _unsent(connection: Connection, target: Purgeable, ids: tuple[int, int]) -> int:
    """Return how many dead letters of the batch are ordered and not sent."""
    first_id, last_id = ids
    ordered = outbox.ordered(connection, target.group, "dlq")
    near = sorted(task_id for task_id in ordered if first_id <= task_id <= last_id)
    own = select(func.count()).where(task.c.id.in_(near), task.c.batch_id == target.id)
    return connection.execute(own).scalar_one() if near else 0
