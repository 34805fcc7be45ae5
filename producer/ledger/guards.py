"""Guards: while one is raised, the tasks of its key wait instead of being given up.

A guard's key is batch, type and route. Agents decide about guards in
`agent/ledger/guard_decisions.py`; this module reads and opens them, for agents and commands alike.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from producer.text.times import written
from schemas.ledger.sql import seconds_until, utc_now
from schemas.ledger.tables import audit, batch, guard, guard_look

ANY_ROUTE = ""  # no route has this name; a task may name a route by any other text


NO_SUCCESS = "no_success"  # the cause of a guard that asks its route instead of trying its tasks
# An agent moves a task of a look that it does not know of; that costs the look only this task.
MEMBERS_READ = 5_000


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard; ages are by the database's clock.

    - `opened_s` is None while the guard is raised.
    - `probe_in_s` is the time until the next look, negative once the look is due. During a look, it
      is the time until a task may be called up for it.
    - `look_size` is the number of tasks in the present look, or in the next one if there is none.
    - `look_left` is the number of free places in the present look, -1 if there is none.
    - `look_at` is when the present look began. Without a look, it is when the last look ended or
      the guard was raised.
    - `vouched` says that the route worked when the look began.
    """

    id: int
    batch_id: int
    batch: str
    type: str
    route: str
    cause: str
    reason: str
    raised_at: datetime
    probe_in_s: float
    opened_s: float | None
    look_at: datetime
    look_s: float = 0.0
    look_size: int = 1
    look_left: int = -1
    vouched: bool = False

    @property
    def raised(self) -> bool:
        """Return whether the guard stops tasks."""
        return self.opened_s is None

    @property
    def looking(self) -> bool:
        """Return whether some of its tasks are tried now."""
        return self.look_left >= 0

    @property
    def key(self) -> str:
        """Return the guard's key, for a person."""
        route = "any route" if self.route == ANY_ROUTE else f"route {self.route}"
        return f"batch {self.batch}, type {self.type}, {route}"

    @property
    def probe_due_s(self) -> float:
        """Return the seconds until its next look, 0 when that is due or under way."""
        return 0.0 if self.looking else round(max(0.0, self.probe_in_s), 1)

    @property
    def ahead(self) -> str:
        """Return the guard's next step, for a person."""
        when = f"in {self.probe_due_s:.0f} s" if self.probe_due_s else "now"
        if self.cause == NO_SUCCESS:
            return f"a prompt is sent to the route {when}"
        tasks = "1 task" if self.look_size == 1 else f"up to {self.look_size} tasks"
        return f"{tasks} of it tried now" if self.looking else f"next look {when}, with {tasks}"

    def as_json(self) -> dict[str, Any]:
        """Return the form for `--json`."""
        names = ("batch", "type", "route", "cause", "reason", "look_size", "looking")
        times = {"raised_at": written(self.raised_at), "probe_in_s": self.probe_due_s}
        return {name: getattr(self, name) for name in names} | times


_READ = (  # built once, because every agent runs this query each second
    select(
        guard,
        batch.c.name.label("batch"),
        seconds_until(guard.c.probe_at).label("probe_in_s"),
        (-seconds_until(guard.c.opened_at)).label("opened_s"),
        (-seconds_until(guard.c.look_at)).label("look_s"),
    )
    .join(batch, batch.c.id == guard.c.batch_id)
    .where(
        guard.c.group_name == bindparam("of_group"),
        or_(guard.c.opened_at.is_(None), guard.c.called_at.is_(None)),
    )
    .order_by(guard.c.id)
)


def read(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards, and the opened guards whose tasks still have to be called up."""
    return [_guard(row) for row in connection.execute(_READ, {"of_group": group})]


def raised(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards."""
    return [one for one in read(connection, group) if one.raised]


def members(connection: Connection, group: str) -> set[int]:
    """Return the tasks of the looks that are under way."""
    query = select(guard_look.c.task_id).join(guard, guard.c.id == guard_look.c.guard_id)
    mine = query.where(guard.c.group_name == group, guard.c.opened_at.is_(None))
    return set(connection.execute(mine.limit(MEMBERS_READ)).scalars())


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
        probe_in_s=float(row.probe_in_s),
        opened_s=None if row.opened_s is None else float(row.opened_s),
        look_at=row.look_at,
        look_s=float(row.look_s),
        look_size=row.look_size,
        look_left=row.look_left,
        vouched=bool(row.vouched),
    )


def open_one(
    connection: Connection, one: Guard, actor: str, why: str, *, forgiven: bool = True
) -> bool:
    """Open a guard, so that its tasks run again, and write an audit row.

    With `forgiven`, earlier failures count no more and the route is known to work; a guard without
    a cause forgives nothing. Returns False if the guard was open already.
    """
    raised = update(guard).where(guard.c.id == one.id, guard.c.opened_at.is_(None))
    cause = one.cause if forgiven else ""
    if (
        connection.execute(
            raised.values(opened_at=utc_now(), called_at=None, look_left=-1, cause=cause)
        ).rowcount
        == 0
    ):
        return False
    connection.execute(delete(guard_look).where(guard_look.c.guard_id == one.id))
    detail = f"{one.key}: {why}"[:2000]
    connection.execute(
        insert(audit), {"actor": actor[:191], "action": "guard open", "detail": detail}
    )
    return True


def open_all(connection: Connection, group: str, batch_id: int, actor: str, why: str) -> None:
    """Open every raised guard of a batch."""
    for one in read(connection, group):
        if one.batch_id == batch_id and one.raised:
            open_one(connection, one, actor, why)
