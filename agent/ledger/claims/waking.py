"""Calls up tasks that wait in the ledger, as SQL: those whose time has come, or whose reason ended.

Any number of agents do this. A row of `waiting` goes in the transaction that orders its task's
record, so a task is called up once. A row whose fence is behind its task's is void: its task was
called up by other means. Locked rows are skipped, so no statement waits for another one here.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, select

from docllm.agent.ports import Order
from docllm.producer.ledger import waiting_rows
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import waiting
from docllm.schemas.task.states import WAITING
from docllm.schemas.task.waits import WaitReason

PAGE = 500
MAX_KEYS = 1000

_WAITS = select(waiting.c.task_id, waiting.c.fence).where(
    waiting.c.group_name == bindparam("of_group")
)
_DUE = _WAITS.where(waiting.c.due_at < utc_now()).order_by(waiting.c.due_at)
_TOLD = _WAITS.where(
    waiting.c.reason == bindparam("for_reason"), waiting.c.reason_key == bindparam("for_key")
).order_by(waiting.c.due_at, waiting.c.task_id)
_FIRST_KEY = (
    select(waiting.c.reason_key)
    .where(
        waiting.c.group_name == bindparam("of_group"),
        waiting.c.reason == bindparam("for_reason"),
        waiting.c.reason_key >= bindparam("after"),
    )
    .order_by(waiting.c.reason_key)
    .limit(1)
)
_NEXT_KEY = _FIRST_KEY.where(waiting.c.reason_key > bindparam("after"))
_ANY_DUE = _DUE.limit(1)


def any_due(connection: Connection, group: str) -> bool:
    """Return whether the time of a task has come."""
    return connection.execute(_ANY_DUE, {"of_group": group}).first() is not None


class CalledUp(NamedTuple):
    """What a call-up ordered, and how many rows it found and deleted."""

    orders: list[Order]
    seen: int


def call_up_due(connection: Connection, group: str) -> CalledUp:
    """Order records for the next tasks whose time has come, PAGE at most."""
    return _call_up(connection, group, _DUE.limit(PAGE), {})


def call_up_told(
    connection: Connection, group: str, ended: WaitingFor, limit: int = PAGE
) -> CalledUp:
    """Order records for the next tasks whose reason to wait has ended, `limit` at most."""
    values = {"for_reason": ended.reason.value, "for_key": ended.key}
    return _call_up(connection, group, _TOLD.limit(limit), values)


def keys(connection: Connection, group: str, reason: WaitReason) -> list[str]:
    """Return for which keys tasks wait for a reason, in their order, MAX_KEYS at most.

    Each is found by a search of its own, which reads one row: a million tasks may wait for one.
    """
    found: list[str] = []
    query = _FIRST_KEY
    while len(found) < MAX_KEYS:
        values = {
            "of_group": group,
            "for_reason": reason.value,
            "after": found[-1] if found else "",
        }
        key = connection.execute(query, values).scalar()
        if key is None:
            break
        found.append(key)
        query = _NEXT_KEY
    return found


def make_due(connection: Connection, group: str, ids: Collection[int]) -> list[Order]:
    """Make waiting tasks due now, whatever they wait for, and order records for them."""
    locked = waiting_rows.lock(connection, ids)
    return waiting_rows.call_up(connection, group, [row for row in locked if row.status in WAITING])


def _call_up(
    connection: Connection, group: str, query: Select[Any], values: dict[str, str]
) -> CalledUp:
    rows = connection.execute(
        query.with_for_update(skip_locked=True), {"of_group": group, **values}
    ).all()
    if not rows:
        return CalledUp([], 0)
    fences = {row.task_id: row.fence for row in rows}
    locked = waiting_rows.lock(connection, fences)
    chosen = [row for row in locked if row.status in WAITING and row.fence == fences[row.id]]
    waiting_rows.forget(connection, {row.id for row in locked} - {row.id for row in chosen})
    return CalledUp(waiting_rows.call_up(connection, group, chosen), len(locked))
