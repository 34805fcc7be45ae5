"""Which results are new to `export --only-new`: a time in the batch's row divides them."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, or_, select, update

from docllm.schemas.ledger.sql import LONG_AGO_TIME, utc_after
from docllm.schemas.ledger.tables import batch

# A result becomes visible when its transaction ends, so younger ones may still be incomplete.
SETTLED_S = 30.0

Stored = tuple[datetime, datetime]


def new_results(connection: Connection, batch_ids: Iterable[int]) -> dict[int, Stored]:
    """Return for each batch when its new results were stored: after one time, until another."""
    query = select(batch.c.id, batch.c.exported_until, utc_after(-SETTLED_S))
    rows = connection.execute(query.where(batch.c.id.in_(list(batch_ids)))).all()
    return {batch_id: (since or LONG_AGO_TIME, until) for batch_id, since, until in rows}


def mark_exported(connection: Connection, written: Mapping[int, Stored]) -> None:
    """Note that these results were written; another export may have written more."""
    column = batch.c.exported_until
    for batch_id, (_, until) in sorted(written.items()):
        connection.execute(
            update(batch)
            .where(batch.c.id == batch_id, or_(column.is_(None), column < until))
            .values(exported_until=until)
        )
