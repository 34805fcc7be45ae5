"""Guards: while one is raised, the tasks of its key wait instead of being given up.

A guard's key is batch, type and route. Agents decide about guards in
`agent/ledger/guards/decisions.py`. This module reads and opens them, for agents and
commands alike.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from typing import Any

from sqlalchemy import Connection, bindparam, delete, literal, or_, select, update

from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.text.times import written
from docllm.schemas.ledger.sql import UtcTime, seconds_until, utc_now
from docllm.schemas.ledger.tables import batch, guard, guard_look
from docllm.schemas.task.guard import Guard

# An agent that does not know of the look yet moves the task; the look loses only this task.
LOOK_TASKS_READ = 5_000


_READ = (  # built once, because every agent runs this query each second
    select(
        guard,
        batch.c.name.label("batch"),
        seconds_until(guard.c.probe_at).label("probe_due_in_s"),
        (-seconds_until(guard.c.opened_at)).label("open_age_s"),
        (-seconds_until(guard.c.look_at)).label("look_age_s"),
    )
    .join(batch, batch.c.id == guard.c.batch_id)
    .where(
        guard.c.group_name == bindparam("of_group"),
        or_(guard.c.opened_at.is_(None), guard.c.called_at.is_(None)),
    )
    .order_by(guard.c.id)
)


def read_guards(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards, and the opened guards whose tasks still have to be called up."""
    return [_guard(row) for row in connection.execute(_READ, {"of_group": group})]


def raised(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards."""
    return [guard for guard in read_guards(connection, group) if guard.raised]


def look_tasks(connection: Connection, group: str) -> set[int]:
    """Return the tasks of the looks that are under way."""
    query = select(guard_look.c.task_id).join(guard, guard.c.id == guard_look.c.guard_id)
    of_group = query.where(guard.c.group_name == group, guard.c.opened_at.is_(None))
    return set(connection.execute(of_group.limit(LOOK_TASKS_READ)).scalars())


def as_json(guard: Guard) -> dict[str, Any]:
    """Return the form of a guard for `--json`."""
    names = ("batch", "type", "route", "cause", "reason", "look_size", "looking")
    times = {"raised_at": written(guard.raised_at), "probe_in_s": guard.next_look_in_s}
    return {name: getattr(guard, name) for name in names} | times


def _guard(row: Any) -> Guard:
    return Guard(
        id=row.id,
        batch_id=row.batch_id,
        batch=row.batch,
        type=row.type,
        route=row.route,
        cause=row.cause,
        reason=row.reason,
        raised_at=row.raised_at,
        probe_due_in_s=float(row.probe_due_in_s),
        open_age_s=None if row.open_age_s is None else float(row.open_age_s),
        look_at=row.look_at,
        look_age_s=float(row.look_age_s),
        look_size=row.look_size,
        look_left=row.look_left,
        vouched=bool(row.vouched),
    )


def open_one(
    connection: Connection, raised_guard: Guard, actor: str, reason: str, *, forgiven: bool = True
) -> bool:
    """Open a guard, so that its tasks run again, and write an audit row.

    With `forgiven`, earlier failures count no more and the route is known to work; for a guard
    without a cause, earlier failures still count. Returns False if the guard was opened since it
    was read, even if it is raised again.
    """
    still_raised = update(guard).where(
        guard.c.id == raised_guard.id,
        guard.c.raised_at == literal(raised_guard.raised_at, UtcTime),
        guard.c.opened_at.is_(None),
    )
    cause = raised_guard.cause if forgiven else ""
    opened = still_raised.values(opened_at=utc_now(), called_at=None, look_left=-1, cause=cause)
    if connection.execute(opened).rowcount == 0:
        return False
    connection.execute(delete(guard_look).where(guard_look.c.guard_id == raised_guard.id))
    group = select(guard.c.group_name).where(guard.c.id == raised_guard.id)
    audit.write(
        connection,
        group=connection.execute(group).scalar_one(),
        actor=actor,
        action="guard open",
        kind=AuditKind.GUARD,
        target=raised_guard.title,
        detail=f"{raised_guard.title}: {reason}",
    )
    return True


def open_all(connection: Connection, group: str, batch_id: int, actor: str, reason: str) -> None:
    """Open every raised guard of a batch."""
    for raised_guard in read_guards(connection, group):
        if raised_guard.batch_id == batch_id and raised_guard.raised:
            open_one(connection, raised_guard, actor, reason)
