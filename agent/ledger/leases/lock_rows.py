"""Locks for resources outside of docllm, as SQL.

A lock is held by a claim (a task id and an owner). It ends with the claim, so it is free after
every attempt, even if the attempt did not release it. Its token, the column `fence`, rises with
each holder, even if the lock's row was deleted or restored in between: it is at least the
database's time in milliseconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy import insert as insert_into

from docllm.agent.ports.lock_table import NOBODY, Claimant, Held, LockChange
from docllm.schemas.ledger.sql import insert_new, utc_after, utc_now
from docllm.schemas.ledger.tables import lock_wait, resource_lock, task
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.task.states import Status

REMEMBER_S = 86400.0  # how long after its last use a lock keeps its row, and a waiter its place
MAX_FORGET = 500  # rows in one transaction
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the database's times are UTC without a zone
_MILLISECOND = timedelta(milliseconds=1)


def _claimed_by(table: Table[Any]) -> ColumnElement[Any]:
    """Return the owner under which the row's task is processed; NULL if it is not.

    A subquery that gives one value is never turned into a join, which might begin with `task`.
    """
    return (
        select(task.c.owner)
        .where(task.c.id == table.c.task_id, task.c.status == int(Status.PROCESSING))
        .scalar_subquery()
    )


def _named(table: Table[Any]) -> ColumnElement[bool]:
    return and_(table.c.group_name == bindparam("of_group"), table.c.name == bindparam("of_name"))


_WAIT = and_(_named(lock_wait), lock_wait.c.task_id == bindparam("of_task"))
# The lock's row is locked, and no row of `task`.
_LOCK = (
    select(
        resource_lock.c.task_id,
        resource_lock.c.owner,
        resource_lock.c.fence,
        resource_lock.c.tickets,
        utc_now().label("now"),
    )
    .where(_named(resource_lock))
    .with_for_update()
)
_CLAIM = select(task.c.owner).where(
    task.c.id == bindparam("of_task"), task.c.status == int(Status.PROCESSING)
)
_NEXT = (
    select(lock_wait.c.task_id, lock_wait.c.owner)
    .where(_named(lock_wait), lock_wait.c.owner != 0, _claimed_by(lock_wait) == lock_wait.c.owner)
    .order_by(lock_wait.c.ticket)
    .limit(1)
)
_WAIT_AGAIN = update(lock_wait).where(_WAIT).values(owner=bindparam("by_owner"))
_LEAVE = update(lock_wait).where(_WAIT, lock_wait.c.owner == bindparam("by_owner")).values(owner=0)
_SERVED = delete(lock_wait).where(_WAIT)
_HOLD = (
    update(resource_lock)
    .where(_named(resource_lock))
    .values(
        task_id=bindparam("to_task"),
        owner=bindparam("to_owner"),
        fence=bindparam("to_token"),
        changed_at=utc_now(),
    )
)
_COUNT = update(resource_lock).where(_named(resource_lock)).values(tickets=bindparam("to_tickets"))
_HOLDERS = select(
    resource_lock.c.name,
    resource_lock.c.task_id,
    resource_lock.c.owner,
    resource_lock.c.fence,
    _claimed_by(resource_lock).label("claimed_by"),
).where(
    resource_lock.c.group_name == bindparam("of_group"),
    resource_lock.c.name.in_(bindparam("names", expanding=True)),
)


class SqlLockTable:
    """The locks of a group in the ledger."""

    def __init__(self, *, transactions: Transactions, group: str) -> None:
        self._transactions = transactions
        self._group = group

    async def change(self, changes: Mapping[str, LockChange]) -> list[Held]:
        """Make the changes in one transaction."""
        return await self._transactions.write(change, self._group, changes)

    async def read_holders(self, names: Iterable[str]) -> list[Held]:
        """Return who holds these locks, without a row lock."""
        return await self._transactions.read(read_holders, self._group, names)


def change(connection: Connection, group: str, changes: Mapping[str, LockChange]) -> list[Held]:
    """Make the changes, as `LockTable` says."""
    return [_change(connection, group, name, changes[name]) for name in sorted(changes)]


def read_holders(connection: Connection, group: str, names: Iterable[str]) -> list[Held]:
    """Return who holds these locks, without a row lock."""
    rows = connection.execute(_HOLDERS, {"of_group": group, "names": sorted(names)})
    return [
        Held(
            row.name,
            Claimant(row.task_id, row.owner),
            row.fence,
            alive=row.owner != 0 and row.claimed_by == row.owner,
        )
        for row in rows
    ]


def forget(connection: Connection) -> int:
    """Delete waits and locks that nobody has used for a day; return how many, at most two pages."""
    old_wait = and_(
        lock_wait.c.asked_at < utc_after(-REMEMBER_S),
        or_(lock_wait.c.owner == 0, _ended(lock_wait)),
    )
    has_waits = exists().where(
        lock_wait.c.group_name == resource_lock.c.group_name,
        lock_wait.c.name == resource_lock.c.name,
    )
    old_lock = and_(
        resource_lock.c.changed_at < utc_after(-REMEMBER_S),
        or_(resource_lock.c.owner == 0, _ended(resource_lock)),
        ~has_waits,
    )
    return _delete(connection, lock_wait, old_wait) + _delete(connection, resource_lock, old_lock)


def _change(connection: Connection, group: str, name: str, change: LockChange) -> Held:
    lock_key = {"of_group": group, "of_name": name}
    lock = _locked(connection, lock_key)
    held, asking = Claimant(lock.task_id, lock.owner), list(change.asking)
    token = lock.fence
    for attempt in change.leaving:
        if attempt != held:
            values = {"of_task": attempt.task_id, "by_owner": attempt.owner}
            connection.execute(_LEAVE, lock_key | values)
    holder = held if held not in change.leaving and _alive(connection, held) else NOBODY
    if holder == NOBODY:
        asks = (attempt for attempt in asking if _alive(connection, attempt))
        holder = _next(connection, lock_key) or next(asks, NOBODY)
        if holder != NOBODY:
            token = max(token + 1, (lock.now - _EPOCH) // _MILLISECOND)
            connection.execute(_SERVED, lock_key | {"of_task": holder.task_id})
        if (holder, token) != (held, lock.fence):
            values = {"to_task": holder.task_id, "to_owner": holder.owner, "to_token": token}
            connection.execute(_HOLD, lock_key | values)
    waiting = [attempt for attempt in asking if attempt != holder]
    if waiting:
        _wait(connection, lock_key, waiting, lock.tickets)
    return Held(name, holder, token, alive=holder != NOBODY)


def _locked(connection: Connection, lock_key: dict[str, Any]) -> Any:
    """Lock the lock's row, which is made if it is missing."""
    row = connection.execute(_LOCK, lock_key).one_or_none()
    if row is None:
        values = {"group_name": lock_key["of_group"], "name": lock_key["of_name"]}
        connection.execute(insert_new(connection, resource_lock), values)
        row = connection.execute(_LOCK, lock_key).one()
    return row


def _alive(connection: Connection, held: Claimant) -> bool:
    """Return whether the claim of a holder goes on."""
    if held == NOBODY:
        return False
    owner = connection.execute(_CLAIM, {"of_task": held.task_id}).scalar()
    return bool(owner == held.owner)


def _next(connection: Connection, lock_key: dict[str, Any]) -> Claimant | None:
    row = connection.execute(_NEXT, lock_key).one_or_none()
    return None if row is None else Claimant(row.task_id, row.owner)


def _wait(
    connection: Connection, lock_key: dict[str, Any], waiting: Sequence[Claimant], tickets: int
) -> None:
    """Let attempts wait; a task that waited before keeps its place."""
    taken = tickets
    for attempt in waiting:
        again = lock_key | {"of_task": attempt.task_id, "by_owner": attempt.owner}
        if connection.execute(_WAIT_AGAIN, again).rowcount == 0:
            taken += 1
            row = {
                "group_name": lock_key["of_group"],
                "name": lock_key["of_name"],
                "task_id": attempt.task_id,
                "ticket": taken,
                "owner": attempt.owner,
            }
            connection.execute(insert_into(lock_wait), row)
    if taken > tickets:
        connection.execute(_COUNT, lock_key | {"to_tickets": taken})


def _ended(table: Table[Any]) -> ColumnElement[bool]:
    """Return the condition under which the claim of a row has ended."""
    claimed_by = _claimed_by(table)
    return or_(claimed_by.is_(None), claimed_by != table.c.owner)


def _delete(connection: Connection, table: Table[Any], is_old: ColumnElement[bool]) -> int:
    """Delete a page of rows that are old; those that were used meanwhile stay."""
    keys = list(table.primary_key)
    page = connection.execute(select(*keys).where(is_old).limit(MAX_FORGET)).all()
    if not page:
        return 0
    chosen = tuple_(*keys).in_([tuple(row) for row in page])
    return connection.execute(delete(table).where(chosen, is_old)).rowcount
