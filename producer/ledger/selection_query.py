"""Turns a selection into queries on the ledger. Changes nothing.

`dead` shows dead letters with these queries, and replays store their items with them.

Tested by tests/contract/test_ledger_dead.py and tests/contract/test_ledger_replay_runs.py.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, false, literal, or_, select

from producer.ledger.selection import Selection
from schemas.ledger.sql import NEVER_TIME, utc_now
from schemas.ledger.tables import batch, dead_letter, quarantine, task
from schemas.task.states import Status


def now(connection: Connection) -> datetime:
    """Return the database's time, UTC without a zone."""
    time: datetime = connection.execute(select(utc_now())).scalar_one()
    return time


def tasks(selection: Selection, group: str) -> Select[Any]:
    """Return a query for id and fence of the selected tasks.

    A caller may add columns of `task`, `batch` and `dead_letter`; for cancelled tasks the query has
    no `dead_letter`.
    """
    query, conditions = _cancelled() if selection.cancelled else _dead(selection)
    conditions.append(batch.c.group_name == group)
    for column, value in (
        (batch.c.name, selection.batch),
        (task.c.type, selection.type),
        (task.c.tenant, selection.tenant),
    ):
        if value is not None:
            conditions.append(column == value)
    if selection.key is not None:
        conditions.append(task.c.task_key == selection.key.encode())
    return query.where(*conditions) if selection.with_tasks else query.where(false())


def _cancelled() -> tuple[Select[Any], list[ColumnElement[bool]]]:
    query = (
        select(task.c.id, task.c.fence).select_from(task).join(batch, batch.c.id == task.c.batch_id)
    )
    return query, [task.c.status == int(Status.CANCELLED)]


def _dead(selection: Selection) -> tuple[Select[Any], list[ColumnElement[bool]]]:
    """Return the query and conditions for dead tasks.

    Start from the few dead letters: `+ 0` keeps the optimizer off the batch and status indexes.
    With a task id those indexes are the right start.
    """
    batch_id, status = task.c.batch_id + 0, task.c.status + 0
    if selection.key is not None:
        batch_id, status = task.c.batch_id, task.c.status
    query = select(dead_letter.c.task_id.label("id"), task.c.fence).select_from(dead_letter)
    query = query.join(task, task.c.id == dead_letter.c.task_id).join(batch, batch.c.id == batch_id)
    return query, [status == int(Status.DEAD), *_letter_conditions(selection)]


def ids_after(selection: Selection, after: int) -> Select[Any]:
    """Return a query for ids above `after`, in order, that include the selected tasks.

    It reads one table along one index, so a page costs the same wherever it begins. A join would be
    sorted for each page.
    """
    if selection.cancelled:
        ended = (task.c.status == int(Status.CANCELLED), task.c.due_at == NEVER_TIME)
        return select(task.c.id).where(*ended, task.c.id > after).order_by(task.c.id)
    letters = dead_letter.c.task_id
    return select(letters).where(*_letter_conditions(selection), letters > after).order_by(letters)


def records(selection: Selection, group: str) -> Select[Any]:
    """Return a query for the selected quarantined records that were not replayed yet.

    It returns their id, and a fence of 0 because tasks have a fence too.
    """
    conditions = [quarantine.c.group_name == group, quarantine.c.replayed_at.is_(None)]
    if selection.record is not None:
        conditions.append(quarantine.c.id == selection.record)
    conditions += _conditions(
        selection, quarantine.c.disposition, quarantine.c.fingerprint, quarantine.c.created_at
    )
    query = select(quarantine.c.id, literal(0).label("fence"))
    return query.where(*conditions) if selection.with_records else query.where(false())


def ready(selection: Selection, cap: int) -> ColumnElement[bool]:
    """Return the condition under which a selected task is replayed.

    The task must be below the cap and, if it is dead, its batch must not be cancelled.
    """
    below_cap = task.c.replays < cap
    return below_cap if selection.cancelled else and_(below_cap, batch.c.cancelled_at.is_(None))


def _letter_conditions(selection: Selection) -> list[ColumnElement[bool]]:
    return _conditions(
        selection, dead_letter.c.disposition, dead_letter.c.fingerprint, dead_letter.c.died_at
    )


def _conditions(
    selection: Selection, disposition: Any, fingerprint: Any, time: Any
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if selection.dispositions:
        conditions.append(or_(*(disposition == name for name in selection.dispositions)))
    if selection.fingerprint:
        conditions.append(fingerprint.between(*selection.fingerprint_range))
    if selection.since is not None:
        conditions.append(time >= selection.since)
    if selection.until is not None:
        conditions.append(time < selection.until)
    return conditions
