"""Leases, as SQL.

An agent incarnation is one row. Its heartbeat keeps it alive, other agents declare it lost, and it
is never revived.
"""

import secrets
from datetime import datetime

from sqlalchemy import Connection, bindparam, case, delete, func, insert, select, update

from docllm.producer.ledger.claiming_agent import agent_in
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import agent, batch, task
from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.states import Status

HEARTBEAT_S = 3.0
LOST_AFTER_S = 12.0  # without a heartbeat, an agent may be declared lost
# An agent without a heartbeat for STALL_S was itself stalled. It may declare no other agent lost
# until it has been steady for AMNESTY_S.
STALL_S = 6.0
AMNESTY_S = 15.0
REMEMBER_S = 86400.0  # how long after its end an agent's tasks are still reset
FORGET_S = 2 * REMEMBER_S  # how long after its end an agent's row is kept
MAX_FORGET = 500  # rows in one transaction

AGENT_BITS = 39

# `steady_since` comes before `seen_at`: MySQL evaluates assignments from left to right, and the
# first one must see the old `seen_at`.
_BEAT = (
    update(agent)
    .where(agent.c.id == bindparam("me"), agent.c.lost_at.is_(None))
    .ordered_values(
        (
            agent.c.steady_since,
            case((agent.c.seen_at < utc_after(-STALL_S), utc_now()), else_=agent.c.steady_since),
        ),
        (agent.c.seen_at, utc_now()),
        (agent.c.report, bindparam("report_json")),
    )
)
# The declaration and the amnesty are one statement, so that no stall can fall between them. After
# the server itself has stalled, no heartbeat is recent, not even that of the asking agent, whose
# next heartbeat then starts the amnesty.
_asking = agent.alias("asking")
_DECLARE = (
    update(agent)
    .where(agent_rows.registered(), agent.c.seen_at < utc_after(bindparam("silent_from_s")))
    .where(
        _asking.c.id == bindparam("me"),
        _asking.c.group_name == agent.c.group_name,
        _asking.c.lost_at.is_(None),
        _asking.c.seen_at > utc_after(bindparam("stalled_from_s")),
        _asking.c.steady_since < utc_after(bindparam("amnesty_from_s")),
    )
    .values(lost_at=utc_now())
)
# Every agent runs these queries each second, whether or not there is work. They are built once,
# because building them costs more than running them.
_GONE = select(agent.c.id).where(
    agent.c.group_name == bindparam("of_group"), agent_rows.gone(REMEMBER_S)
)
_CANCELLED = select(batch.c.id, batch.c.name, batch.c.cancelled_at).where(
    batch.c.group_name == bindparam("of_group"),
    batch.c.cancelled_at.is_not(None),
    batch.c.archived_at.is_(None),
)


def register(
    connection: Connection,
    name: str,
    group: str,
    version: str,
    revision: str = "",
    release: str = "",
) -> int:
    """Write a row for a new incarnation; return its id.

    `revision` is the schema revision that its program works with, `release` the label under which
    its attempts are counted.

    The id is drawn at random, so that a restored database never repeats one.
    """
    agent_id = _draw()
    while connection.execute(select(agent.c.id).where(agent.c.id == agent_id)).scalar() is not None:
        agent_id = _draw()
    row = {
        "id": agent_id,
        "name": name[:191],
        "group_name": group,
        "version": version[:32],
        "revision": revision,
        "release_name": release,
    }
    connection.execute(insert(agent), row)
    return agent_id


def _draw() -> int:
    return secrets.randbits(AGENT_BITS - 1) + 1  # with the owner bits it fits a signed BIGINT


def beat(connection: Connection, agent_id: int, report: str = "") -> bool:
    """Renew the lease and store the agent's report; return False if it was declared lost."""
    return connection.execute(_BEAT, {"me": agent_id, "report_json": report or None}).rowcount == 1


def declare_silent_agents(connection: Connection, agent_id: int) -> int:
    """Declare the agents lost whose heartbeat is too old; return how many.

    Declares none if this agent was itself stalled.
    """
    times = {
        "silent_from_s": -LOST_AFTER_S,
        "stalled_from_s": -STALL_S,
        "amnesty_from_s": -AMNESTY_S,
    }
    return connection.execute(_DECLARE, {"me": agent_id} | times).rowcount


def declare_lost(connection: Connection, agent_id: int) -> bool:
    """Declare one agent lost; return False if it was already lost or had stopped."""
    alive_row = update(agent).where(agent.c.id == agent_id, agent_rows.registered())
    return connection.execute(alive_row.values(lost_at=utc_now())).rowcount == 1


def stop(connection: Connection, agent_id: int) -> None:
    """Record that an agent left of its own accord, after its last settle."""
    connection.execute(
        update(agent)
        .where(agent.c.id == agent_id, agent.c.stopped_at.is_(None))
        .values(stopped_at=utc_now())
    )


def gone(connection: Connection, group: str) -> frozenset[int]:
    """Return the agents of a group that were lost or stopped in the last day."""
    return frozenset(connection.execute(_GONE, {"of_group": group}).scalars())


def forget(connection: Connection) -> int:
    """Delete agents that left long ago; return how many, at most a page.

    The row of an agent that still holds a task is kept: an agent whose own row is missing considers
    itself lost.
    """
    claims = (
        select(agent_in(task.c.owner)).where(task.c.status == int(Status.PROCESSING)).distinct()
    )
    busy = sorted(connection.execute(claims).scalars())
    left_long_ago = func.coalesce(agent.c.stopped_at, agent.c.lost_at) < utc_after(-FORGET_S)
    forgettable = (
        select(agent.c.id)
        .where(left_long_ago, agent.c.id.not_in(busy))
        .order_by(agent.c.id)
        .limit(MAX_FORGET)
    )
    ids = connection.execute(forgettable).scalars().all()
    return connection.execute(delete(agent).where(agent.c.id.in_(ids))).rowcount if ids else 0


def alive(connection: Connection, group: str) -> list[tuple[int, str]]:
    """Return id and name of the group's agents that are neither lost nor stopped."""
    query = select(agent.c.id, agent.c.name).where(
        agent.c.group_name == group, agent_rows.registered()
    )
    return [(row.id, row.name) for row in connection.execute(query)]


def cancelled(connection: Connection, group: str) -> frozenset[tuple[int, str, datetime]]:
    """Return id, name and time of cancel of each cancelled batch of a group.

    The time matters because a replayed batch may be cancelled again.
    """
    return frozenset(
        (row.id, row.name, row.cancelled_at)
        for row in connection.execute(_CANCELLED, {"of_group": group})
    )


def owner_range(agent_id: int) -> tuple[int, int]:
    """Return the first and last owner number of an incarnation."""
    return owner_of(agent_id, 0), owner_of(agent_id + 1, 0) - 1
