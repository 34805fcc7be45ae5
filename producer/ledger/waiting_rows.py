"""The rows of tasks that wait in the ledger, and of what their handlers keep until then.

A task that waits here has no record and no publish order: agents call it up
(`agent/ledger/claims/waking.py`). The rows are written and deleted under their task's lock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from docllm.producer.ledger import outbox
from docllm.producer.ports import Order
from docllm.producer.text.times import written
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import NEVER_TIME, UtcTime, name, seconds_until, utc_now
from docllm.schemas.ledger.tables import task, task_state, waiting
from docllm.schemas.task.waits import WaitReason, wait_text
from docllm.schemas.text.wording import number_of

MAX_READ = 10_000  # waiting tasks of a group that a screen reads
MAX_COUNTED = 1_000_000  # and that are counted
MAX_SHOWN = 20  # things to wait for that it shows

_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
# A task waits no longer than until its deadline, at which its claim ends it.
_UNTIL = case((task.c.expires_at < task.c.due_at, task.c.expires_at), else_=task.c.due_at)
_PUT = insert(waiting).from_select(
    ["task_id", "fence", "group_name", "reason", "reason_key", "due_at"],
    select(
        task.c.id,
        task.c.fence,
        bindparam("of_group", type_=name(100)),
        bindparam("for_reason", type_=name(16)),
        bindparam("for_key", type_=name(191)),
        _UNTIL,
    ).where(task.c.id.in_(_IDS)),
)
# The rows in force: one whose fence is behind its task's is void, until an agent deletes it.
_IN_FORCE = (task.c.id == waiting.c.task_id) & (task.c.fence == waiting.c.fence)
_FORGET = delete(waiting).where(waiting.c.task_id.in_(_IDS))
_FORGET_STATE = delete(task_state).where(task_state.c.task_id.in_(_IDS))
_LOCKED = (
    select(task.c.id, task.c.fence, task.c.lane, task.c.status)
    .where(task.c.id.in_(_IDS))
    .order_by(task.c.id)
    .with_for_update(skip_locked=True)
)
_COUNT_ANEW = update(task_state).where(task_state.c.task_id.in_(_IDS)).values(come_backs=0)


@dataclass(frozen=True, slots=True)
class LedgerWait:
    """How many tasks wait for the same thing, and when, and in how many seconds, the first is due.

    `reason` is a `WaitReason`, unless a newer version has another one. `are_more`: not all waiting
    tasks of the group were read.
    """

    reason: str
    key: str
    tasks: int
    due_s: float
    due_at: datetime
    are_more: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`."""
        counts = {"reason": self.reason, "key": self.key, "tasks": self.tasks}
        first = None if self.due_at == NEVER_TIME else written(self.due_at)
        return counts | {"first_until": first}

    @property
    def text(self) -> str:
        """The same in words."""
        tasks = ("at least " if self.are_more else "") + number_of(self.tasks, "task")
        verb = "waits" if self.tasks == 1 else "wait"
        first = "" if self.tasks == 1 else "the first "
        waits = f"{tasks} {verb} {wait_text(self.reason, self.key)}"
        return waits + until(self.due_at, first)


def until(due_at: datetime, first: str = "") -> str:
    """Return until when a task waits at the latest, to follow a sentence; joins may have no end."""
    return "" if due_at == NEVER_TIME else f", {first}until {written(due_at)} at the latest"


class WaitingFor(NamedTuple):
    """What a task waits for: a reason, and which route, guard or type it is about."""

    reason: WaitReason
    key: str = ""


def put(connection: Connection, group: str, waits: Sequence[tuple[int, WaitingFor]]) -> None:
    """Let tasks wait until the time in their row, at most until their deadline."""
    forget(connection, [task_id for task_id, _ in waits])
    for waiting_for in sorted({waiting_for for _, waiting_for in waits}):
        ids = sorted(task_id for task_id, other in waits if other == waiting_for)
        values = {"for_reason": waiting_for.reason.value, "for_key": waiting_for.key}
        connection.execute(_PUT, {"ids": ids, "of_group": group, **values})


def wait_until(connection: Connection, times: Sequence[tuple[int, datetime]]) -> None:
    """Put the time of tasks off until a time (UTC without a zone), if that is later."""
    for task_id, at in sorted(times):
        at_time = literal(at, UtcTime)
        later = update(task).where(task.c.id == task_id, task.c.due_at < at_time)
        connection.execute(later.values(due_at=at_time))


def forget(connection: Connection, ids: Collection[int]) -> None:
    """Delete the rows of tasks that wait no more."""
    if ids:
        connection.execute(_FORGET, {"ids": sorted(ids)})


def lock(connection: Connection, ids: Collection[int]) -> Sequence[Any]:
    """Lock tasks to be called up, without those that another transaction holds."""
    return connection.execute(_LOCKED, {"ids": sorted(ids)}).all()


def call_up(connection: Connection, group: str, rows: Sequence[Any]) -> list[Order]:
    """Make locked tasks that wait due now, and order their records."""
    if not rows:
        return []
    ids = [row.id for row in rows]
    of_rows = update(task).where(task.c.id.in_(ids))
    connection.execute(of_rows.values(due_at=utc_now(), carrier=outbox.LANE_CARRIER))
    forget(connection, ids)
    return outbox.place_in_lanes(connection, group, rows)


def keep_states(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Store what handlers keep, in place of what they kept before."""
    if rows:
        forget_states(connection, [row["task_id"] for row in rows])
        insert_rows(connection, task_state, rows)


def forget_states(connection: Connection, ids: Collection[int]) -> None:
    """Delete what the handlers of these tasks kept."""
    if ids:
        connection.execute(_FORGET_STATE, {"ids": sorted(ids)})


def count_anew(connection: Connection, ids: Collection[int]) -> None:
    """Keep the states of tasks that are replayed, and count their come-backs anew."""
    connection.execute(_COUNT_ANEW, {"ids": sorted(ids)})


def of_task(connection: Connection, task_id: int, fence: int) -> str:
    """Return for what a task waits in the ledger, and until when, in words; empty if it does not.

    `fence` is that of the task: a row behind it is void.
    """
    query = select(waiting).where(waiting.c.task_id == task_id, waiting.c.fence == fence)
    row = connection.execute(query).one_or_none()
    if row is None:
        return ""
    return f"{wait_text(row.reason, row.reason_key)}{until(row.due_at)}"


def read(connection: Connection, group: str) -> list[LedgerWait]:
    """Return for what the group's tasks wait, the first due first, over MAX_READ tasks.

    All joins are taken together: each parent would be a thing of its own to wait for.
    """
    first = (
        select(waiting)
        .join(task, _IN_FORCE)
        .where(waiting.c.group_name == group)
        .order_by(waiting.c.due_at)
        .limit(MAX_READ)
        .subquery()
    )
    first_due = func.min(first.c.due_at)
    key = case((first.c.reason == WaitReason.CHILDREN.value, ""), else_=first.c.reason_key)
    rows = connection.execute(
        select(
            first.c.reason,
            key,
            func.count(),
            func.min(seconds_until(first.c.due_at)),
            first_due,
        )
        .group_by(first.c.reason, key)
        .order_by(first_due)
    ).all()
    are_more = sum(row[2] for row in rows) >= MAX_READ
    return [
        LedgerWait(reason, key, count, max(0.0, float(due_s)), due_at, are_more)
        for reason, key, count, due_s, due_at in rows[:MAX_SHOWN]
    ]


def for_a_time(group: str) -> Select[Any]:
    """Return the batch and the time of MAX_READ tasks that wait for a time, the first due first."""
    of_time = (
        waiting.c.group_name == group,
        waiting.c.reason == WaitReason.TIME.value,
        waiting.c.reason_key == "",
    )
    rows = select(task.c.batch_id, waiting.c.due_at).join(task, _IN_FORCE).where(*of_time)
    return rows.order_by(waiting.c.due_at).limit(MAX_READ)


def count(connection: Connection, group: str) -> int:
    """Return how many tasks of a group wait in the ledger, MAX_COUNTED at most."""
    rows = select(task.c.id).select_from(waiting).join(task, _IN_FORCE)
    rows = rows.where(waiting.c.group_name == group).limit(MAX_COUNTED)
    return connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one()
