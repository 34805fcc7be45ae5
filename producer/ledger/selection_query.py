"""Turns a selection into queries on the ledger. Changes nothing.

`dead` shows dead letters with these queries, and replays store their items with them.
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
    found: datetime = connection.execute(select(utc_now())).scalar_one()
    return found


def tasks(chosen: Selection, group: str) -> Select[Any]:
    """Return a query for id and fence of the selected tasks.

    A caller may add columns of `task`, `batch` and `dead_letter`; for cancelled tasks the query has
    no `dead_letter`.
    """
    query, where = _cancelled() if chosen.cancelled else _dead(chosen)
    where.append(batch.c.group_name == group)
    for column, value in (
        (batch.c.name, chosen.batch),
        (task.c.type, chosen.type),
        (task.c.tenant, chosen.tenant),
    ):
        if value is not None:
            where.append(column == value)
    if chosen.key is not None:
        where.append(task.c.task_key == chosen.key.encode())
    return query.where(*where) if chosen.with_tasks else query.where(false())


def _cancelled() -> tuple[Select[Any], list[ColumnElement[bool]]]:
    query = (
        select(task.c.id, task.c.fence).select_from(task).join(batch, batch.c.id == task.c.batch_id)
    )
    return query, [task.c.status == int(Status.CANCELLED)]


def _dead(chosen: Selection) -> tuple[Select[Any], list[ColumnElement[bool]]]:
    """Return the query and conditions for dead tasks.

    Start from the few dead letters: `+ 0` keeps the optimizer off the batch and status indexes.
    With a task id those indexes are the right start.
    """
    batch_id, status = (
        (task.c.batch_id, task.c.status)
        if chosen.key is not None
        else (task.c.batch_id + 0, task.c.status + 0)
    )
    query = select(dead_letter.c.task_id.label("id"), task.c.fence).select_from(dead_letter)
    query = query.join(task, task.c.id == dead_letter.c.task_id).join(batch, batch.c.id == batch_id)
    return query, [status == int(Status.DEAD), *_of_letter(chosen)]


def some_after(chosen: Selection, after: int) -> Select[Any]:
    """Return a query for ids above `after`, in order, that include the selected tasks.

    It reads one table along one index, so a page costs the same wherever it begins. A join would be
    sorted for each page.
    """
    if chosen.cancelled:
        ended = (task.c.status == int(Status.CANCELLED), task.c.due_at == NEVER_TIME)
        return select(task.c.id).where(*ended, task.c.id > after).order_by(task.c.id)
    letters = dead_letter.c.task_id
    return select(letters).where(*_of_letter(chosen), letters > after).order_by(letters)


def records(chosen: Selection, group: str) -> Select[Any]:
    """Return a query for the selected quarantined records that were not replayed yet.

    It returns their id, and a fence of 0 because tasks have a fence too.
    """
    where = [quarantine.c.group_name == group, quarantine.c.replayed_at.is_(None)]
    if chosen.record is not None:
        where.append(quarantine.c.id == chosen.record)
    where += _matching(
        chosen, quarantine.c.disposition, quarantine.c.fingerprint, quarantine.c.created_at
    )
    query = select(quarantine.c.id, literal(0).label("fence"))
    return query.where(*where) if chosen.with_records else query.where(false())


def ready(chosen: Selection, cap: int) -> ColumnElement[bool]:
    """Return the condition under which a selected task is replayed.

    The task must be below the cap and, if it is dead, its batch must not be cancelled.
    """
    below = task.c.replays < cap
    return below if chosen.cancelled else and_(below, batch.c.cancelled_at.is_(None))


def _of_letter(chosen: Selection) -> list[ColumnElement[bool]]:
    return _matching(
        chosen, dead_letter.c.disposition, dead_letter.c.fingerprint, dead_letter.c.died_at
    )


def _matching(
    chosen: Selection, disposition: Any, fingerprint: Any, at: Any
) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if chosen.dispositions:
        where.append(or_(*(disposition == one for one in chosen.dispositions)))
    if chosen.fingerprint:
        where.append(fingerprint.between(*chosen.fingerprint_range))
    if chosen.since is not None:
        where.append(at >= chosen.since)
    if chosen.until is not None:
        where.append(at < chosen.until)
    return where
