"""Turns a selection into queries on the ledger. Changes nothing.

`dead` shows dead letters with these queries, and replays store their items with them.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, false, literal, or_, select

from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.store import find_batch
from docllm.schemas.ledger.query_plans import batches_of, unindexed
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.ledger.tables import batch, dead_letter, quarantine, task, task_input
from docllm.schemas.task.states import Status


def now(connection: Connection) -> datetime:
    """Return the database's time, UTC without a zone."""
    time: datetime = connection.execute(select(utc_now())).scalar_one()
    return time


def tasks(
    connection: Connection, selection: Selection, group: str, index: str | None = None
) -> Select[Any]:
    """Return a query for id and fence of the selected tasks.

    A caller may add columns of `dead_letter`, or for cancelled tasks, of `task` and `batch`. For a
    condition of its own, it may name the index of `dead_letter` to follow.
    """
    if selection.cancelled:
        query = _cancelled(selection, group)
    else:
        columns = (dead_letter.c.task_id.label("id"), dead_letter.c.fence)
        query = _letters(connection, select(*columns), selection, group, index)
    return query if selection.with_tasks else query.where(false())


def ids_after(connection: Connection, selection: Selection, group: str, after: int) -> Select[Any]:
    """Return a query for ids above `after`, in order, that include the selected tasks.

    It reads one table along one index, so a page costs the same wherever it begins. A join would be
    sorted for each page, and so would dead letters in the order of their times.
    """
    if selection.cancelled:
        ended = (task.c.status == int(Status.CANCELLED), task.c.due_at == NEVER_TIME)
        return select(task.c.id).where(*ended, task.c.id > after).order_by(task.c.id)
    task_id = dead_letter.c.task_id
    query = _letters(connection, select(task_id), selection, group, page_index(selection))
    return query.where(task_id > after).order_by(task_id)


def _cancelled(selection: Selection, group: str) -> Select[Any]:
    query = select(task.c.id, task.c.fence).join(batch, batch.c.id == task.c.batch_id)
    query = query.where(task.c.status == int(Status.CANCELLED), batch.c.group_name == group)
    for column, value in (
        (batch.c.name, selection.batch),
        (task.c.type, selection.type),
        (task.c.tenant, selection.tenant),
        (task.c.task_key, None if selection.key is None else selection.key.encode()),
    ):
        if value is not None:
            query = query.where(column == value)
    return query


def _letters(
    connection: Connection,
    query: Select[Any],
    selection: Selection,
    group: str,
    index: str | None = None,
) -> Select[Any]:
    """Return the query of `dead_letter`, for the selected dead letters.

    The tasks of a batch have neighbouring ids. So a query for a batch follows the primary key
    between its first and its last task, and meets few dead letters of other batches.
    """
    index = index or _index(selection)
    query = query.where(
        *_of_batch(connection, selection, group, index),
        *_of_death(
            selection, dead_letter.c.disposition, dead_letter.c.fingerprint, dead_letter.c.died_at
        ),
    )
    for column, value in (
        (dead_letter.c.type, selection.type),
        (dead_letter.c.tenant, selection.tenant),
    ):
        if value is not None:
            query = query.where(column == value)
    if selection.key is not None:
        query = query.where(dead_letter.c.task_id.in_(_ids(connection, selection.key, group)))
    return along(query, index)


def _index(selection: Selection) -> str:
    """Return the index of `dead_letter` that the selection needs; empty: whichever is best."""
    if selection.fingerprint or selection.key is not None:
        return ""
    return "PRIMARY" if selection.since is None else "ix_dead_died"


def page_index(selection: Selection) -> str:
    """Return the index of `dead_letter` for pages in the order of task ids; empty as above."""
    return _index(selection) and "PRIMARY"


def _ids(connection: Connection, key: str, group: str) -> list[int]:
    """Return the group's tasks with this key: one search for each batch."""
    batches = batches_of(group)
    query = select(task.c.id).where(task.c.batch_id.in_(batches), task.c.task_key == key.encode())
    return list(connection.execute(query).scalars())


def _of_batch(
    connection: Connection, selection: Selection, group: str, index: str
) -> list[ColumnElement[bool]]:
    """Return the condition that a dead letter is in the selected batch, or else in the group.

    A subquery that gives one value is never turned into a join, with which a server might begin.
    """
    if selection.batch is None:
        owner = select(batch.c.group_name).where(batch.c.id == dead_letter.c.batch_id)
        return [owner.correlate(dead_letter).scalar_subquery() == group]
    named = find_batch(connection, selection.batch)
    if named is None or named.group != group:
        return [false()]
    is_of_batch = unindexed(dead_letter.c.batch_id) == named.id
    if index != "PRIMARY":
        return [is_of_batch]
    return [is_of_batch, dead_letter.c.task_id.between(*id_range(connection, named.id))]


def records(selection: Selection, group: str) -> Select[Any]:
    """Return a query for the selected quarantined records that were not replayed yet.

    It returns their id, and a fence of 0 because tasks have a fence too.
    """
    conditions = [quarantine.c.group_name == group, quarantine.c.replayed_at.is_(None)]
    if selection.record is not None:
        conditions.append(quarantine.c.id == selection.record)
    conditions += _of_death(
        selection, quarantine.c.disposition, quarantine.c.fingerprint, quarantine.c.created_at
    )
    query = select(quarantine.c.id, literal(0).label("fence"))
    return query.where(*conditions) if selection.with_records else query.where(false())


def along(query: Select[Any], index: str) -> Select[Any]:
    """Return the query, forced to follow this index of `dead_letter`, if any, and no other."""
    return query.with_hint(dead_letter, f"FORCE INDEX ({index})", "mysql") if index else query


def ready(selection: Selection, cap: int) -> ColumnElement[bool]:
    """Return the condition under which a selected task is replayed.

    The task must be below the cap and have its input, and its batch must not be archived. The batch
    of a dead task must not be cancelled either.
    """
    table, key = (task, task.c.id) if selection.cancelled else (dead_letter, dead_letter.c.task_id)
    body = select(task_input.c.task_id).where(task_input.c.task_id == key).correlate(table)
    has_input = body.scalar_subquery().is_not(None)
    below_cap = unindexed(table.c.replays) < cap
    if selection.cancelled:
        return and_(below_cap, has_input, batch.c.archived_at.is_(None))
    is_open = (batch.c.cancelled_at.is_(None), batch.c.archived_at.is_(None))
    owner = select(batch.c.id).where(batch.c.id == dead_letter.c.batch_id, *is_open)
    in_open_batch = owner.correlate(dead_letter).scalar_subquery().is_not(None)
    return and_(below_cap, in_open_batch, has_input)


def _of_death(
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
