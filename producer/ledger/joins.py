"""Joins, as SQL: follow-ups that wait until the other follow-ups of their parent have ended.

Nothing counts the siblings. Whoever ends one locks the rows of the joins that wait for it, and then
asks whether another is open. Of two transactions that end the last two siblings, the second one
waits for the first, and then sees both ends. Agents ask again each minute, because a sibling may
have another parent, or end in the same moment in which its join begins to wait.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    bindparam,
    case,
    func,
    select,
    update,
)

from docllm.producer.ledger import waiting_rows
from docllm.producer.ledger.waiting_rows import LedgerWait, WaitingFor
from docllm.producer.ports import Order
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import follow_up, task, task_input, task_result, waiting
from docllm.schemas.runtime import crash
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.result.codec import EXPIRED
from docllm.schemas.task.states import OPEN, WAITING, Status
from docllm.schemas.task.waits import DEAD, WaitReason
from docllm.schemas.text.wording import number_of

PAGE = 500  # parents of waiting joins in one statement
CHILDREN, CHILDREN_BYTES = 100, 1 << 20  # that a join reads together
SHOWN = 10  # tasks that a sentence names

_KEYS: BindParameter[Any] = bindparam("keys", expanding=True)
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_OF_GROUP = (
    waiting.c.group_name == bindparam("of_group"),
    waiting.c.reason == WaitReason.CHILDREN.value,
)
_NEXT_KEYS = (
    select(waiting.c.reason_key)
    .where(*_OF_GROUP, waiting.c.reason_key > bindparam("after"))
    .distinct()
    .order_by(waiting.c.reason_key)
    .limit(PAGE)
)
_LOCK = select(waiting.c.task_id).where(*_OF_GROUP, waiting.c.reason_key.in_(_KEYS))
_PARENTS = select(task.c.parent_id).where(task.c.id.in_(_IDS)).distinct()

_JOIN = task.alias("joining")
# A scalar subquery, because no server turns it into a join with a plan of its own.
_SIBLING = (
    select(task.c.status)
    .where(task.c.id == follow_up.c.task_id, task.c.join_role <= int(JoinRole.SIBLING))
    .correlate(follow_up)
    .scalar_subquery()
)


def _any_sibling(statuses: Sequence[Status]) -> ColumnElement[bool]:
    """Return whether a sibling is in such a state; the newest come first, for they end last.

    MySQL reads along the key only if it is named whole.
    """
    of_parent = follow_up.c.parent_id == _JOIN.c.parent_id
    first = (
        select(follow_up.c.task_id)
        .where(of_parent, _SIBLING.in_([int(status) for status in statuses]))
        .order_by(follow_up.c.parent_id.desc(), follow_up.c.task_id.desc())
        .limit(1)
    )
    return first.correlate(_JOIN).scalar_subquery().is_not(None)


# Joins with the worst state of their siblings, of three: PENDING if any is open, else DEAD if any
# is dead or cancelled, else SUCCEEDED. The second question is asked only if none is open.
_WORST = case(
    (_any_sibling(OPEN), int(Status.PENDING)),
    (_any_sibling((Status.DEAD, Status.CANCELLED)), int(Status.DEAD)),
    else_=int(Status.SUCCEEDED),
)
_STANDING = select(_JOIN.c.id, _JOIN.c.parent_id, _JOIN.c.join_role, _WORST.label("worst"))
_OF_JOINS = _STANDING.where(_JOIN.c.id.in_(_IDS))
_OF_WAITING = (
    _STANDING.join(waiting, (waiting.c.task_id == _JOIN.c.id) & (waiting.c.fence == _JOIN.c.fence))
    .where(*_OF_GROUP, waiting.c.reason_key.in_(_KEYS))
    .order_by(_JOIN.c.id)
)

_ROLE = select(task.c.parent_id, task.c.join_role).where(task.c.id == bindparam("of_join"))
_SIZES = (
    select(task.c.id, func.coalesce(func.length(task_result.c.body), 0))
    .select_from(follow_up)
    .join(task, task.c.id == follow_up.c.task_id)
    .outerjoin(task_result, task_result.c.task_id == task.c.id)
    .where(
        follow_up.c.parent_id == bindparam("of_parent"),
        follow_up.c.task_id > bindparam("after"),
        task.c.join_role <= int(JoinRole.SIBLING),
    )
    .order_by(follow_up.c.task_id)
    .limit(CHILDREN)
)
_ENDS = (
    select(task.c.id, task.c.task_key, task.c.status, task_input.c.body, task_result.c.codec)
    .add_columns(task_result.c.body.label("result"))
    .outerjoin(task_input, task_input.c.task_id == task.c.id)
    .outerjoin(task_result, task_result.c.task_id == task.c.id)
    .where(task.c.id.in_(_IDS))
    .order_by(task.c.id)
)
_WAIT = select(waiting.c.reason_key, waiting.c.due_at).where(
    waiting.c.task_id == bindparam("of_join"),
    waiting.c.fence == bindparam("at_fence"),
    waiting.c.reason == WaitReason.CHILDREN.value,
)
_SIBLINGS = (
    select(task.c.task_key, task.c.status)
    .join(follow_up, follow_up.c.task_id == task.c.id)
    .where(
        follow_up.c.parent_id == bindparam("of_parent"),
        task.c.join_role <= int(JoinRole.SIBLING),
    )
    .order_by(task.c.id)
)


class EndedChild(NamedTuple):
    """A task for which a join waited, with its line, and its result as it is stored."""

    id: int
    key: str
    status: Status
    line: bytes
    codec: int
    result: bytes | None


def waiting_for(parent_id: int) -> WaitingFor:
    """Return what the joins of a parent wait for."""
    return WaitingFor(WaitReason.CHILDREN, str(parent_id))


def after_end(connection: Connection, group: str, ids: Collection[int]) -> list[Order]:
    """Order records for the joins that have waited for the ends of these tasks.

    To be called after the update that ends them, in its transaction.
    """
    parents = connection.execute(_PARENTS, {"ids": sorted(ids)}).scalars()
    return call_up(connection, group, [str(parent_id) for parent_id in parents])


def call_up(connection: Connection, group: str, keys: Collection[str]) -> list[Order]:
    """Order records for the joins of these parents whose siblings have ended.

    A join that a dead sibling ends is called up too: its next claim ends it. One whose task another
    transaction holds, a cancel for example, is left to the next question.
    """
    values = {"of_group": group, "keys": sorted(keys)}
    if connection.execute(_LOCK.with_for_update(), values).first() is None:
        return []
    ended = {row.id: row for row in connection.execute(_OF_WAITING, values) if _has_ended(row)}
    if not ended:
        return []
    rows = [row for row in waiting_rows.lock(connection, ended) if row.status in WAITING]
    doomed = [row.id for row in rows if _is_doomed(ended[row.id])]
    if doomed:
        _change_role(connection, doomed, JoinRole.DOOMED)
    orders = waiting_rows.call_up(connection, group, rows)
    crash.reach("join.called_up")
    return orders


def wait_again(connection: Connection, group: str, rows: Sequence[Any]) -> set[int]:
    """Let replayed joins wait whose siblings have not all succeeded; return their ids.

    They have no record until then. Agents ask for them within a minute.
    """
    joins = {row.id: row.parent_id for row in rows if row.join_role > JoinRole.SIBLING}
    if not joins:
        return set()
    doomed = [row.id for row in rows if row.join_role == JoinRole.DOOMED]
    if doomed:
        _change_role(connection, doomed, JoinRole.DIE)
    standing = connection.execute(_OF_JOINS, {"ids": sorted(joins)}).all()
    waits = [row.id for row in standing if row.worst != Status.SUCCEEDED]
    if waits:
        of_rows = update(task).where(task.c.id.in_(waits))
        connection.execute(of_rows.values(due_at=NEVER_TIME))
        waiting_rows.put(
            connection, group, [(join_id, waiting_for(joins[join_id])) for join_id in waits]
        )
    return set(waits)


def pages_of_keys(connection: Connection, group: str, after: str = "") -> Sequence[str]:
    """Return the next keys for which joins wait, in their order, PAGE at most."""
    values = {"of_group": group, "after": after}
    return connection.execute(_NEXT_KEYS, values).scalars().all()


def ended(connection: Connection, group: str, keys: Sequence[str]) -> list[str]:
    """Return the keys of joins that may be called up, without a lock."""
    rows = connection.execute(_OF_WAITING, {"of_group": group, "keys": keys})
    return sorted({str(row.parent_id) for row in rows if _has_ended(row)})


def any_ended(connection: Connection, group: str) -> bool:
    """Return whether a join may be called up."""
    return any(_has_ended(row) for row in _waiting(connection, group))


def stopped(connection: Connection, group: str) -> int:
    """Return how many joins wait for a replay: their siblings have ended, and one is dead.

    As other waiting tasks on a screen, MAX_READ joins at most are read.
    """
    rows = islice(_waiting(connection, group), waiting_rows.MAX_READ)
    return sum(map(_is_stopped, rows))


def stopped_in(connection: Connection, batch_id: int, open_tasks: int) -> int:
    """Return how many joins of a batch wait for a replay; 0 if another of its tasks is open."""
    is_waiting = (
        task.c.batch_id == batch_id,
        task.c.status == int(Status.PENDING),
        task.c.due_at == NEVER_TIME,
    )
    count = select(func.count()).select_from(task).where(*is_waiting)
    if connection.execute(along_open(count)).scalar_one() < open_tasks:
        return 0
    ids = connection.execute(along_open(select(task.c.id).where(*is_waiting))).scalars().all()
    stopped_joins = 0
    for start in range(0, len(ids), PAGE):
        page = connection.execute(_OF_JOINS, {"ids": ids[start : start + PAGE]})
        stopped_joins += sum(map(_is_stopped, page))
    return stopped_joins


def ledger_waits(connection: Connection, group: str) -> list[LedgerWait]:
    """Return for what the group's tasks wait, with the joins apart that wait for a replay."""
    waits = waiting_rows.read(connection, group)
    of_joins = next((wait for wait in waits if wait.reason == WaitReason.CHILDREN), None)
    count = stopped(connection, group) if of_joins else 0
    if not of_joins or not count:
        return waits
    others = replace(of_joins, tasks=of_joins.tasks - count)
    kept = [others if wait is of_joins else wait for wait in waits]
    return [wait for wait in kept if wait.tasks > 0] + [replace(of_joins, key=DEAD, tasks=count)]


def text_of(connection: Connection, join_id: int, fence: int) -> str:
    """Return for which tasks a join waits, in words; empty if it waits for none.

    `fence` is that of its task: a row behind it is void.
    """
    row = connection.execute(_WAIT, {"of_join": join_id, "at_fence": fence}).one_or_none()
    if row is None:
        return ""
    siblings = connection.execute(_SIBLINGS, {"of_parent": int(row.reason_key)}).all()
    names = [
        f"{key.decode(errors='backslashreplace')!r} ({Status(status).name.lower()})"
        for key, status in siblings
        if status != Status.SUCCEEDED
    ]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    of_all = f"{len(names):,} of {number_of(len(siblings), 'task')} that its parent ordered"
    shown = f": {', '.join(names[:SHOWN])}{more}" if names else ""
    return f"for {of_all}{shown}{waiting_rows.until(row.due_at)}"


def children(connection: Connection, join_id: int, after: int) -> list[EndedChild] | None:
    """Return the next tasks for which a join waited; None if it is no join.

    A page has CHILDREN tasks at most, and no second one beyond CHILDREN_BYTES of results.
    """
    join = connection.execute(_ROLE, {"of_join": join_id}).one_or_none()
    if join is None or join.join_role <= JoinRole.SIBLING:
        return None
    ids: list[int] = []
    total = 0
    sizes = connection.execute(_SIZES, {"of_parent": join.parent_id, "after": after}).all()
    for task_id, size in sizes:
        total += size
        if ids and total > CHILDREN_BYTES:
            break
        ids.append(task_id)
    rows = connection.execute(_ENDS, {"ids": ids}) if ids else ()
    return [_child(row) for row in rows]


def _child(row: Any) -> EndedChild:
    key, status = row.task_key.decode(errors="backslashreplace"), Status(row.status)
    is_there = status is Status.SUCCEEDED and row.codec not in {None, EXPIRED}
    result = bytes(row.result) if is_there else None
    return EndedChild(row.id, key, status, bytes(row.body or b""), row.codec or 0, result)


def _waiting(connection: Connection, group: str) -> Iterator[Any]:
    after = ""
    while keys := pages_of_keys(connection, group, after):
        yield from connection.execute(_OF_WAITING, {"of_group": group, "keys": keys})
        after = keys[-1]


def _has_ended(row: Any) -> bool:
    """Return whether a join waits no more."""
    return row.worst != Status.PENDING and not _is_stopped(row)


def _is_doomed(row: Any) -> bool:
    """Return whether a dead sibling ends a join."""
    return bool(row.worst == Status.DEAD and row.join_role == JoinRole.DIE)


def _is_stopped(row: Any) -> bool:
    """Return whether a join waits for the replay of a dead sibling."""
    return bool(row.worst == Status.DEAD and row.join_role == JoinRole.WAIT)


def _change_role(connection: Connection, ids: Sequence[int], role: JoinRole) -> None:
    connection.execute(update(task).where(task.c.id.in_(ids)).values(join_role=int(role)))
