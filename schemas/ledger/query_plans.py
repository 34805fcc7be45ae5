"""Query parts about a group's tasks whose plan must not depend on a server's statistics."""

from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, Subquery, select
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from docllm.schemas.ledger.tables import batch, task


def in_group(
    group: str | BindParameter[Any],
    *batch_is: ColumnElement[bool],
) -> ColumnElement[bool]:
    """Return the condition that a task belongs to a batch of this group.

    A scalar subquery is used, because optimizers never turn it into a join. With a join, servers
    started at `batch` and read every task, because their statistics estimated thousands of small
    batches instead of 20 batches of millions of tasks.
    """
    owner = select(batch.c.group_name).where(batch.c.id == task.c.batch_id, *batch_is)
    return owner.scalar_subquery() == group


def unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the column with a unary plus, which keeps SQLite from using an index on it.

    Servers ignore the plus; for them, the query has an index hint.
    """
    return UnaryExpression(column, operator=custom_op("+"), type_=column.type)


def along_open(query: Select[Any]) -> Select[Any]:
    """Return the query, forced to use the index (batch_id, status, due_at) of `task`.

    It is for queries of the open tasks of one batch: no other index keeps them apart from the
    batch's finished tasks. SQLite takes that index anyway.
    """
    return query.with_hint(task, "FORCE INDEX (ix_task_open)", "mysql")


def along_due(query: Select[Any]) -> Select[Any]:
    """Return the query, forced to use the index (status, due_at) whatever the statistics say.

    SQLite takes that index anyway.
    """
    return query.with_hint(task, "FORCE INDEX (ix_task_due)", "mysql")


_SHOWN = [
    task.c[name]
    for name in "id batch_id type tenant task_key route owner attempt max_attempts due_at".split()
]


def first_due(status: int, most: int, *conditions: ColumnElement[bool]) -> Subquery:
    """Return the tasks of a state that are due first, over all groups."""
    tasks = select(*_SHOWN).where(task.c.status == int(status), *conditions)
    return along_due(tasks.order_by(task.c.due_at)).limit(most).subquery()


def batches_of(group: str, *conditions: ColumnElement[bool]) -> Select[tuple[int]]:
    """Return a query for the ids of a group's batches."""
    return select(batch.c.id).where(batch.c.group_name == group, *conditions)


NOT_ARCHIVED = batch.c.archived_at.is_(None)
