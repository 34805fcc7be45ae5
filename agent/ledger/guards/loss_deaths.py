"""Bounds how many tasks die because agents were lost over them, as SQL.

More such deaths than LOST_PER_WINDOW mean a bad release, not poison tasks. The guards of the tasks
that would die then are raised, and no more die.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from docllm.agent.judge import Tier, fingerprint
from docllm.agent.ledger.guards import decisions
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Dead, Outcome
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import batch, tally
from docllm.schemas.task.failures import Disposition, ErrorClass, may_have_finished

LOST_PER_WINDOW = 10
WINDOW_S = 600.0
# Of the deaths that `on_loss` demands: their tasks are not guilty of anything.
_NOT_GUILTY = fingerprint(ErrorClass.WORKER_LOST, may_have_finished(""))


class Lost(NamedTuple):
    """A task that is guilty of the loss of agents, by its publication."""

    task_id: int
    fence: int
    batch_id: int
    type: str


def may_die(connection: Connection, group: str, lost: Sequence[Lost]) -> set[int]:
    """Return the ids of the tasks that may die; raise the guards of those that are too many.

    While a guard is raised, only tasks of its looks die.
    """
    if not lost:
        return set()
    stopped = decisions.raised_for_losses(connection, {(task.batch_id, task.type) for task in lost})
    tried: set[int] = set()
    if stopped:
        tried = decisions.in_lost_looks(
            connection, group, [(task.task_id, task.fence) for task in lost]
        )
    candidates = [
        task for task in lost if (task.batch_id, task.type) not in stopped or task.task_id in tried
    ]
    deaths_allowed = deaths_left(connection, group)
    if spared := {(task.batch_id, task.type) for task in candidates[deaths_allowed:]}:
        reason = f"more than {LOST_PER_WINDOW} tasks died of lost agents in 10 minutes"
        decisions.raise_for_losses(connection, group, spared, reason)
    return {task.task_id for task in candidates[:deaths_allowed]}


def spare(
    connection: Connection, group: str, settlements: Sequence[Settlement], longest: Tier
) -> Sequence[Settlement]:
    """Return the settlements; suspects that ended their processes, but may not die, wait."""
    rows = [settlement.row for settlement in settlements if _is_guilty(settlement.outcome)]
    lost = [Lost(row.task_id, row.fence, row.batch_id, row.type) for row in rows]
    spared = {task.task_id for task in lost} - may_die(connection, group, lost)
    return [
        _waiting(settlement, longest) if settlement.row.task_id in spared else settlement
        for settlement in settlements
    ]


def _is_guilty(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Dead)
        and outcome.disposition == Disposition.WORKER_LOST
        and outcome.failure.keeps_losses
    )


def _waiting(settlement: Settlement, longest: Tier) -> Settlement:
    outcome = settlement.outcome
    if not isinstance(outcome, Dead):
        return settlement
    return replace(settlement, outcome=decisions.put_off(settlement.row, outcome, longest))


def deaths_left(connection: Connection, group: str) -> int:
    """Return how many more tasks may be given up in this window."""
    query = (
        select(func.coalesce(func.sum(tally.c.delta), 0))
        .join(batch, batch.c.id == tally.c.batch_id)
        .where(
            batch.c.group_name == group,
            tally.c.outcome == ErrorClass.WORKER_LOST,
            tally.c.fingerprint != _NOT_GUILTY,
            tally.c.created_at > utc_after(-WINDOW_S),
        )
        .where(tally.c.delta > 0)  # a replay gives none of these deaths back
    )
    return max(0, LOST_PER_WINDOW - int(connection.execute(query).scalar_one()))
