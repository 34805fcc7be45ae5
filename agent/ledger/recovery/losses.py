"""Records which tasks ran in each lost agent, as SQL, to find the task that kills agents.

A loss is charged to every task in a lost agent's hands. A task is found guilty only if it was the
only task of a lost agent. Then the losses that other tasks share with it are undone. There are few
such rows: each is deleted at its task's next counted end, or after a day.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, select, update

from docllm.agent.ledger.leases.leasing import REMEMBER_S, owner_range
from docllm.agent.ports import SUSPECT_LOSSES
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import agent, batch, task, task_loss
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import OPEN, Status

PAGE = 500

_UNCHARGE = (
    update(task)
    .where(task.c.id == bindparam("of_task"))
    .values(
        lease_losses=case(
            (task.c.lease_losses > bindparam("times"), task.c.lease_losses - bindparam("times")),
            else_=0,
        )
    )
)
_FORGET = delete(task_loss).where(
    task_loss.c.task_id == bindparam("of_task"), task_loss.c.agent_id == bindparam("of_agent")
)


def charge(connection: Connection, rows: Sequence[Any]) -> None:
    """Record in which lost agent each of these tasks was."""
    insert_rows(
        connection,
        task_loss,
        [{"task_id": row.id, "agent_id": agent_of(row.owner)} for row in rows],
        keep=True,
    )


def guilty(connection: Connection, rows: Sequence[Any]) -> list[Any]:
    """Return the crash suspects that were alone in a lost agent.

    A reaper has locked `rows`.
    """
    suspects = [row for row in rows if row.lease_losses >= SUSPECT_LOSSES]
    if not suspects:
        return []
    tasks_in = Counter(agent_of(row.owner) for row in rows)
    agents = sorted({agent_of(row.owner) for row in suspects})
    lost = select(agent.c.id).where(agent.c.id.in_(agents), agent.c.lost_at.is_not(None))
    lost_ids = set(connection.execute(lost).scalars())
    alone = [
        row
        for row in suspects
        if tasks_in[agent_of(row.owner)] == 1 and agent_of(row.owner) in lost_ids
    ]
    return [row for row in alone if not _had_company(connection, row)]


def _had_company(connection: Connection, row: Any) -> bool:
    """Return whether the task's agent held another task, even if that task was already reset."""
    first_owner, last_owner = owner_range(agent_of(row.owner))
    earlier = select(task_loss.c.task_id).where(
        task_loss.c.agent_id == agent_of(row.owner), task_loss.c.task_id != row.id
    )
    later = select(task.c.id).where(
        task.c.status == int(Status.PROCESSING),
        task.c.owner.between(first_owner, last_owner),
        task.c.id != row.id,
    )
    queries = (earlier.limit(1), later.limit(1))
    return any(connection.execute(query).scalar() is not None for query in queries)


def undo(connection: Connection, group: str) -> int:
    """Undo the losses that open tasks share with a task that died of them.

    The dead task is a task of the group. Returns how many losses were undone, at most a page.
    """
    beside, culprit, dead = task_loss.alias(), task_loss.alias(), task.alias()
    query = (
        select(beside.c.task_id, beside.c.agent_id)
        .join(
            culprit,
            (culprit.c.agent_id == beside.c.agent_id) & (culprit.c.task_id != beside.c.task_id),
        )
        .join(dead, dead.c.id == culprit.c.task_id)
        .join(batch, batch.c.id == dead.c.batch_id)
        .join(task, task.c.id == beside.c.task_id)
        .where(batch.c.group_name == group)
        .where(dead.c.status == int(Status.DEAD), dead.c.lease_losses > 0, task.c.status.in_(OPEN))
        .order_by(beside.c.task_id)
        .distinct()
        .limit(PAGE)
    )
    shared = [(row.task_id, row.agent_id) for row in connection.execute(query)]
    if not shared:
        return 0
    times = Counter(task_id for task_id, _ in shared)
    connection.execute(
        select(task.c.id).where(task.c.id.in_(sorted(times))).order_by(task.c.id).with_for_update()
    )
    connection.execute(
        _UNCHARGE,
        [{"of_task": task_id, "times": count} for task_id, count in sorted(times.items())],
    )
    connection.execute(
        _FORGET, [{"of_task": task_id, "of_agent": agent_id} for task_id, agent_id in shared]
    )
    return len(shared)


def forget(connection: Connection) -> int:
    """Delete rows of tasks without losses, and rows older than a day; return how many.

    At most a page of each kind is deleted.
    """
    query = select(task_loss.c.task_id, task_loss.c.agent_id)
    settled = query.join(task, task.c.id == task_loss.c.task_id).where(task.c.lease_losses == 0)
    expired = query.where(task_loss.c.created_at < utc_after(-REMEMBER_S))
    rows: Collection[tuple[int, int]] = {
        (row.task_id, row.agent_id)
        for rows_to_drop in (settled, expired)
        for row in connection.execute(rows_to_drop.limit(PAGE))
    }
    if rows:
        connection.execute(
            _FORGET,
            [{"of_task": task_id, "of_agent": agent_id} for task_id, agent_id in sorted(rows)],
        )
    return len(rows)
