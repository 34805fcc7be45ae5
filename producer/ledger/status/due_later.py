"""Reads which tasks cannot end before a time, so that no rate promises an end before it."""

from typing import NamedTuple

from sqlalchemy import Connection, func, select, union_all

from docllm.producer.ledger import long_waits, waiting_rows
from docllm.schemas.ledger.sql import seconds_until


class DueLater(NamedTuple):
    """How many tasks of a batch are due later, and in how many seconds the last of them is."""

    tasks: int = 0
    left_s: float = 0.0


NOTHING_LATER = DueLater()


def read(connection: Connection, group: str) -> dict[int, DueLater]:
    """Return, by batch, the tasks that wait for a time, or were put off for more than a minute.

    Retries that count are not among them: `retries` has these. Only those due first are read.
    """
    waits = waiting_rows.for_a_time(group).subquery()
    put_off = long_waits.put_off(group).subquery()
    rows = union_all(
        select(waits.c.batch_id, waits.c.due_at), select(put_off.c.batch_id, put_off.c.due_at)
    ).subquery()
    last_s = func.max(seconds_until(rows.c.due_at))
    query = select(rows.c.batch_id, func.count(), last_s).group_by(rows.c.batch_id)
    return {
        batch_id: DueLater(count, max(0.0, float(left_s)))
        for batch_id, count, left_s in connection.execute(query)
    }
