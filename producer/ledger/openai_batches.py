"""Batches that were made through OpenAI's batch API: `docllm serve` makes, fails and reads them.

Such a batch is a batch like any other, named `openai-` and its id. What only that API knows of it
is in its options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, select, update

from docllm.producer.ledger import batch_options, store
from docllm.producer.ledger.retention.archive_rows import last_change
from docllm.producer.ledger.status.batch_status import BatchStatus, read_batches
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import batch

PREFIX = "openai-"
ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class OpenAIBatch:
    """A batch as the API needs it; times are UTC without a zone.

    `facts` are what its client said. `changed_at` is when a task of it last changed its state.
    """

    batch: store.Batch
    facts: Mapping[str, Any]
    created_at: datetime
    loaded_at: datetime | None
    cancelled_at: datetime | None
    changed_at: datetime
    status: BatchStatus

    @property
    def id(self) -> str:
        """Its id in the API."""
        return self.batch.name.removeprefix(PREFIX)


def create(
    connection: Connection, group: str, batch_id: str, facts: Mapping[str, Any]
) -> OpenAIBatch:
    """Make a batch without tasks."""
    made = store.open_batch(connection, PREFIX + batch_id, group)
    batch_options.set_openai(connection, made.id, facts)
    return _read(connection, group, connection.execute(_named(group, batch_id)).one())


def find(connection: Connection, group: str, batch_id: str) -> OpenAIBatch | None:
    """Return the batch of this id, or None."""
    row = connection.execute(_named(group, batch_id)).one_or_none()
    if row is None or batch_options.openai(row.options) is None:
        return None
    return _read(connection, group, row)


def fail(connection: Connection, target: store.Batch, errors: Sequence[Mapping[str, Any]]) -> None:
    """Note why nothing of a batch is loaded; it takes no tasks from now on.

    A batch that was cancelled before stays one that was cancelled.
    """
    row = connection.execute(select(batch).where(batch.c.id == target.id)).one()
    if row.cancelled_at is None:
        facts = batch_options.openai(row.options) or {}
        batch_options.set_openai(connection, target.id, {**facts, ERRORS: list(errors)})
        closed = update(batch).where(batch.c.id == target.id)
        connection.execute(closed.values(cancelled_at=utc_now()))


def page(connection: Connection, group: str, after: str | None, most: int) -> list[OpenAIBatch]:
    """Return at most so many batches, the newest first, from behind the batch `after`.

    Raises ConfigError if there is no such batch.
    """
    query = _all(group).order_by(batch.c.id.desc()).limit(most)
    if after is not None:
        query = query.where(batch.c.id < store.require_batch(connection, group, PREFIX + after).id)
    return [_read(connection, group, row) for row in connection.execute(query).all()]


def unloaded(connection: Connection, group: str) -> list[OpenAIBatch]:
    """Return the batches whose file is not loaded to its end."""
    query = _all(group).where(batch.c.closed_at.is_(None), batch.c.cancelled_at.is_(None))
    rows = connection.execute(query.order_by(batch.c.id)).all()
    return [_read(connection, group, row) for row in rows]


def _named(group: str, batch_id: str) -> Select[Any]:
    return select(batch).where(batch.c.group_name == group, batch.c.name == PREFIX + batch_id)


def _all(group: str) -> Select[Any]:
    names = batch.c.name.like(f"{PREFIX}batch\\_%", escape="\\")
    return select(batch).where(
        batch.c.group_name == group, names, batch.c.options.like('%"openai":%')
    )


def _read(connection: Connection, group: str, row: Row[Any]) -> OpenAIBatch:
    found = store.find_batch(connection, row.name)
    assert found is not None  # noqa: S101 - its row was just read
    (status,) = read_batches(connection, group, row.name)
    return OpenAIBatch(
        batch=found,
        facts=batch_options.openai(row.options) or {},
        created_at=row.created_at,
        loaded_at=row.closed_at,
        cancelled_at=row.cancelled_at,
        changed_at=last_change(connection, row.id),
        status=status,
    )
