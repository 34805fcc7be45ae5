"""Guards of the dead-letter topic: while one is raised, tasks of its key wait, not die.

A guard's key is batch, type and route. Agents decide about guards in `agent/ledger/guard.py`; this
module reads and opens them, for agents and commands alike.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, or_, select, update

from producer.moments import written
from schemas.sql import seconds_until, utc_now
from schemas.tables import audit, batch, guard

ANY_ROUTE = ""  # no route has this name; a task may name a route by any other text


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard; ages are by the database's clock.

    `probe_in_s` is negative once the probe is due. `opened_s` is None while the guard is raised.
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
    probe_task: int
    opened_s: float | None

    @property
    def raised(self) -> bool:
        """Return whether the guard stops tasks."""
        return self.opened_s is None

    @property
    def key(self) -> str:
        """Return the guard's key, for a person."""
        return f"batch {self.batch}, type {self.type}, {'any route' if self.route == ANY_ROUTE else f'route {self.route}'}"

    @property
    def probe_due_s(self) -> float:
        """Return the seconds until its next probe, 0 if the probe is due."""
        return round(max(0.0, self.probe_in_s), 1)

    def as_json(self) -> dict[str, Any]:
        """Return the form for `--json`."""
        names = ("batch", "type", "route", "cause", "reason")
        times = {"raised_at": written(self.raised_at), "probe_in_s": self.probe_due_s}
        return {name: getattr(self, name) for name in names} | times


_READ = (  # built once, because every agent runs this query each second
    select(
        guard,
        batch.c.name.label("batch"),
        seconds_until(guard.c.probe_at).label("probe_in_s"),
        (-seconds_until(guard.c.opened_at)).label("opened_s"),
    )
    .join(batch, batch.c.id == guard.c.batch_id)
    .where(guard.c.group_name == bindparam("of_group"), or_(guard.c.opened_at.is_(None), guard.c.called_at.is_(None)))
    .order_by(guard.c.id)
)


def read(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards, and the opened guards whose tasks still have to be called up."""
    return [_guard(row) for row in connection.execute(_READ, {"of_group": group})]


def raised(connection: Connection, group: str) -> list[Guard]:
    """Return the raised guards."""
    return [one for one in read(connection, group) if one.raised]


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
        probe_task=row.probe_task,
        opened_s=None if row.opened_s is None else float(row.opened_s),
    )


def open_one(connection: Connection, one: Guard, actor: str, why: str) -> bool:
    """Open a guard, so that its tasks run again, and write an audit row.

    Returns False if the guard was open already.
    """
    raised = update(guard).where(guard.c.id == one.id, guard.c.opened_at.is_(None))
    if connection.execute(raised.values(opened_at=utc_now(), called_at=None)).rowcount == 0:
        return False
    connection.execute(insert(audit), {"actor": actor[:191], "action": "guard open", "detail": f"{one.key}: {why}"[:2000]})
    return True
