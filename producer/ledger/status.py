"""Reads a group's status from the ledger: batches, agents, failures, and why nothing runs.

Read only. No query in here grows with the number of tasks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from producer.ledger import batch_status, guards, outbox, replay_runs
from producer.ledger.batch_status import BatchStatus
from producer.ledger.replay_runs import Run
from schemas.ledger.migrations import ledger_id
from schemas.ledger.sql import seconds_until, utc_after
from schemas.ledger.tables import agent, task
from schemas.task.guard import Guard
from schemas.task.states import OWNER_BITS, Status

SILENT_S = 6.0  # without a heartbeat, after which an agent counts as silent
# How long after its last heartbeat an agent is shown: at most, if it stopped, and if it is lost. A
# lost agent is shown longer while it holds tasks.
SHOWN_S = 600.0
STOPPED_SHOWN_S = 30.0
LOST_SHOWN_S = 60.0
REAPER = " (reaper)"  # the suffix in the name of an agent that runs no tasks


class AgentState(StrEnum):
    """The state of an agent; the names are shown to people and programs."""

    ALIVE = "alive"
    SILENT = "silent"  # its last heartbeat is some seconds old
    LOST = "lost"  # it was declared lost, and its tasks were reset
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent; `silent_s` is the age of its last heartbeat by the database's clock."""

    id: int
    name: str
    state: AgentState
    silent_s: float
    notice: str

    @property
    def works(self) -> bool:
        """Return whether this agent takes tasks: it is alive, and does more than reaping."""
        return self.state is AgentState.ALIVE and not self.name.endswith(REAPER)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Everything that `status` shows."""

    group: str
    ledger: str
    agents: tuple[AgentStatus, ...]
    batches: tuple[BatchStatus, ...]
    orders: int
    reasons: tuple[str, ...]
    guards: tuple[Guard, ...] = ()
    replays: tuple[Run, ...] = ()  # stored, and not ended

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`, version 1."""
        head = {
            "version": 1,
            "group": self.group,
            "ledger": self.ledger,
            "orders": self.orders,
            "reasons": list(self.reasons),
        }
        head |= {"guards": [guards.as_json(guard) for guard in self.guards]}
        head |= {"replays": [replay_runs.as_json(run) for run in self.replays]}
        return head | {
            "agents": [asdict(row) for row in self.agents],
            "batches": [asdict(row) for row in self.batches],
        }


def read(connection: Connection, group: str, name: str | None = None) -> GroupStatus:
    """Return the status of a group, or of one of its batches."""
    agents = _agents(connection, group)
    batches = tuple(batch_status.read(connection, group, name))
    orders, _ = outbox.waiting(connection, group)
    raised = tuple(
        guard for guard in guards.raised(connection, group) if name in {None, guard.batch}
    )
    reasons = _reasons(group, _missing_agents(connection, agents), agents, batches, raised)
    replays = tuple(replay_runs.unfinished(connection, group))
    return GroupStatus(
        group, ledger_id(connection), agents, batches, orders, reasons, raised, replays
    )


def _missing_agents(connection: Connection, agents: Sequence[AgentStatus]) -> list[AgentStatus]:
    """Return the silent and lost agents to show to a person.

    A lost agent's claims run again within seconds. After a minute, a lost agent is shown only if it
    still holds tasks.
    """
    missing = [agent for agent in agents if agent.state in {AgentState.LOST, AgentState.SILENT}]
    lost_ids = {
        agent.id
        for agent in missing
        if agent.state is AgentState.LOST and agent.silent_s > LOST_SHOWN_S
    }
    if not lost_ids:
        return missing
    holder = task.c.owner.op(">>")(OWNER_BITS)
    holders = (
        select(holder)
        .where(task.c.status == int(Status.PROCESSING), holder.in_(lost_ids))
        .distinct()
    )
    recovered = lost_ids - set(connection.execute(holders).scalars())
    return [agent for agent in missing if agent.id not in recovered]


def _agents(connection: Connection, group: str) -> tuple[AgentStatus, ...]:
    silent = (-seconds_until(agent.c.seen_at)).label("silent_s")
    recent = or_(agent.c.stopped_at.is_(None), agent.c.stopped_at > utc_after(-STOPPED_SHOWN_S))
    query = select(agent, silent).where(
        agent.c.group_name == group, agent.c.seen_at > utc_after(-SHOWN_S), recent
    )
    query = query.order_by(agent.c.started_at)
    return tuple(_agent_status(row) for row in connection.execute(query))


def _agent_status(row: Row[Any]) -> AgentStatus:
    silent_s = round(max(0.0, float(row.silent_s)), 1)
    if row.stopped_at is not None:
        state = AgentState.STOPPED
    elif row.lost_at is not None:
        state = AgentState.LOST
    else:
        state = AgentState.SILENT if silent_s > SILENT_S else AgentState.ALIVE
    return AgentStatus(row.id, row.name, state, silent_s, row.notice)


def _reasons(
    group: str,
    missing: Sequence[AgentStatus],
    agents: tuple[AgentStatus, ...],
    batches: tuple[BatchStatus, ...],
    raised: tuple[Guard, ...],
) -> tuple[str, ...]:
    """Return why work waits, for a person.

    Notices of agents are always included, the other reasons only while a batch is open.
    """
    notices = tuple(
        dict.fromkeys(
            agent.notice for agent in agents if agent.notice and agent.state is AgentState.ALIVE
        )
    )
    if not any(agent.open for agent in batches):
        return notices  # inbox lines that nobody reads are in no batch yet
    reasons = [f"agent {agent.name} {agent.state}, {agent.silent_s:.0f} s" for agent in missing]
    if not any(agent.works for agent in agents):
        reasons.append(f"no agent alive; start one: python -m agent --group {group}")
    reasons += [f"guard of {guard.key}: {guard.reason}; {guard.ahead}" for guard in raised]
    return (*reasons, *notices)
