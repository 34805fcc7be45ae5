"""What agents read of resumed routes, as SQL, and how they end the waits of tasks."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, select, update

from docllm.producer.ledger.tally import counts
from docllm.schemas.ledger.query_plans import batches_of
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import route_resume, task
from docllm.schemas.task.states import Status

KNOWN_S = 86400.0
# Built once, because every agent runs this query each second.
_RESUMED = select(route_resume.c.route, route_resume.c.resumed_at).where(
    route_resume.c.group_name == bindparam("of_group")
)


def resumed(connection: Connection, group: str) -> dict[str, datetime]:
    """Return when each route of a group was last resumed."""
    return {row.route: row.resumed_at for row in connection.execute(_RESUMED, {"of_group": group})}


def end_waits(connection: Connection, ids: Sequence[int]) -> None:
    """Make these tasks due now, as far as they wait after an attempt that is not counted."""
    waits = (
        task.c.id.in_(sorted(ids)),
        task.c.status == int(Status.PENDING),
        task.c.due_at > utc_now(),
    )
    connection.execute(update(task).where(*waits).values(due_at=utc_now()))


def routes_in_use(connection: Connection, group: str) -> set[str]:
    """Return the routes on which attempts of the group ended in the last day."""
    of_group = batches_of(group)
    recent = counts(
        lambda column: [
            column["newest_at"] > utc_after(-KNOWN_S),
            column["route"] != "",
            column["batch_id"].in_(of_group),
        ]
    )
    return set(connection.execute(select(recent.c.route).distinct()).scalars())
