"""Reads a group's status from the ledger: batches, agents, failures, and why nothing runs.

Read only. Counts come from the tally; no query in here grows with the number of tasks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select

from producer.ledger import guards, outbox, store
from schemas.ledger.migrations import ledger_id
from schemas.ledger.sql import seconds_until, utc_after
from schemas.ledger.tables import agent, batch, tally, task
from schemas.task.failures import ErrorClass, TallyOutcome
from schemas.task.guard import Guard
from schemas.task.states import OWNER_BITS, Status

RATE_WINDOW_S = 60.0
SILENT_S = 6.0  # without a heartbeat, after which an agent counts as silent
# How long after its last heartbeat an agent is shown: at most, if it stopped, and if it is lost. A
# lost agent is shown longer while it holds tasks.
SHOWN_S = 600.0
STOPPED_SHOWN_S = 30.0
LOST_SHOWN_S = 60.0
COUNTED_MOST = 20_000  # tasks that are read row by row
# The outcomes in the tally that are no failed attempts.
_NO_FAILURES = frozenset({*TallyOutcome, ErrorClass.GUARD, ErrorClass.ROUTE})
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
class BatchStatus:
    """One batch. `cost` is in the currency's unit; `eta_s` is None while nothing moves."""

    name: str
    counts: dict[str, int]
    rate_per_s: float
    eta_s: float | None
    tokens_in: int
    tokens_out: int
    cost: float
    failures: dict[str, int] = field(default_factory=dict)
    cancelled: bool = False
    half_loaded: bool = False
    origin: str = "load"

    @property
    def open(self) -> int:
        """Return how many tasks are not final."""
        return self.counts["pending"] + self.counts["processing"] + self.counts["retrying"]


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
        return head | {
            "agents": [asdict(row) for row in self.agents],
            "batches": [asdict(row) for row in self.batches],
        }


def read(connection: Connection, group: str, name: str | None = None) -> GroupStatus:
    """Return the status of a group, or of one of its batches."""
    agents = _agents(connection, group)
    batches = tuple(_batches(connection, group, name))
    orders, _ = outbox.waiting(connection, group)
    raised = tuple(
        guard for guard in guards.raised(connection, group) if name in {None, guard.batch}
    )
    reasons = _reasons(group, _missing_agents(connection, agents), agents, batches, raised)
    return GroupStatus(group, ledger_id(connection), agents, batches, orders, reasons, raised)


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


def _batches(connection: Connection, group: str, name: str | None) -> list[BatchStatus]:
    query = (
        select(batch)
        .where(batch.c.group_name == group, batch.c.archived_at.is_(None))
        .order_by(batch.c.id)
    )
    rows = connection.execute(query if name is None else query.where(batch.c.name == name)).all()
    sums = {row.id: _sums(connection, row.id) for row in rows}
    running = _running(connection, sums)
    half_loaded = set(store.half_loaded(connection, group))
    return [
        _batch_status(connection, row, sums[row.id], running.get(row.id, {}), half_loaded)
        for row in rows
    ]


def _running(
    connection: Connection, sums: Mapping[int, Sequence[Any]]
) -> dict[int, dict[str, int]]:
    """Return, by batch, how many tasks are processing and retrying.

    Only batches whose sums allow such tasks are queried. Processing tasks are held by agents and
    are never many. Of all retrying tasks in the ledger, only those due first are counted, so that
    an outage makes no screen slow. The others are shown as pending.
    """
    counts: dict[int, dict[str, int]] = {}
    for status, limit in ((Status.PROCESSING, None), (Status.RETRYING, COUNTED_MOST)):
        batches = [batch_id for batch_id, rows in sums.items() if _may_have(rows, status)]
        first_due = (
            select(task.c.batch_id)
            .where(task.c.status == int(status))
            .order_by(task.c.due_at)
            .limit(limit)
            .subquery()
        )
        query = (
            select(first_due.c.batch_id, func.count().label("n"))
            .where(first_due.c.batch_id.in_(batches))
            .group_by(first_due.c.batch_id)
        )
        for row in connection.execute(query) if batches else ():
            counts.setdefault(row.batch_id, {})[status.name.lower()] = row.n
    return counts


def _may_have(rows: Sequence[Any], status: Status) -> bool:
    """Return whether a batch with these sums may have tasks in this state.

    It needs tasks that are not final; for the retrying state, some must once have been sent to a
    tier.
    """
    return _counts(rows, {})["pending"] > 0 and (
        status is Status.PROCESSING or any(row.state == status for row in rows)
    )


def _sums(connection: Connection, batch_id: int) -> Sequence[Any]:
    """Return the sums of a batch, by state and outcome."""
    sums = (
        func.sum(tally.c.delta),
        func.sum(tally.c.tokens_in),
        func.sum(tally.c.tokens_out),
        func.sum(tally.c.cost_micro),
    )
    names = ("n", "tokens_in", "tokens_out", "cost_micro")
    columns = [column.label(label) for column, label in zip(sums, names, strict=True)]
    query = (
        select(tally.c.state, tally.c.outcome, *columns)
        .where(tally.c.batch_id == batch_id)
        .group_by(tally.c.state, tally.c.outcome)
    )
    return connection.execute(query).all()


def _batch_status(
    connection: Connection,
    row: Row[Any],
    all_sums: Sequence[Any],
    running: Mapping[str, int],
    half_loaded: Collection[str],
) -> BatchStatus:
    counts = _counts(all_sums, running)
    rate = _rate(connection, row.id)
    waiting = counts["pending"] + counts["processing"] + counts["retrying"]
    return BatchStatus(
        name=row.name,
        counts=counts,
        rate_per_s=rate,
        eta_s=round(waiting / rate, 1) if rate > 0 else (0.0 if waiting == 0 else None),
        tokens_in=int(sum(sums.tokens_in for sums in all_sums)),
        tokens_out=int(sum(sums.tokens_out for sums in all_sums)),
        cost=float(sum(sums.cost_micro for sums in all_sums)) / 1e6,
        failures=_failures(all_sums),
        cancelled=row.cancelled_at is not None,
        half_loaded=row.name in half_loaded,
        origin=store.Origin(row.note).name.lower(),
    )


def _counts(rows: Any, running: Mapping[str, int]) -> dict[str, int]:
    total = sum(
        int(row.n)
        for row in rows
        if row.state == Status.PENDING and row.outcome == TallyOutcome.LOADED
    )
    final = {
        status.name.lower(): sum(int(row.n) for row in rows if row.state == status)
        for status in (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)
    }
    processing, retrying = running.get("processing", 0), running.get("retrying", 0)
    pending = max(0, total - sum(final.values()) - processing - retrying)
    return {
        "total": total,
        "pending": pending,
        "processing": processing,
        "retrying": retrying,
    } | final


def _failures(rows: Any) -> dict[str, int]:
    """Return the numbers of dead tasks and of retried attempts, by outcome.

    The keys are `dead BAD_REQUEST` for tasks and `tried again RATE` for attempts that were not the
    last. The latter include attempts that do not count against the task's limit. A claim that was
    given back is no attempt.
    """
    numbers: dict[str, int] = {}
    entered_by_failure = {Status.DEAD, Status.PENDING, Status.RETRYING}
    for row in rows:
        if row.outcome not in _NO_FAILURES and row.state in entered_by_failure:
            name = f"{'dead' if row.state == Status.DEAD else 'tried again'} {row.outcome}"
            numbers[name] = numbers.get(name, 0) + int(row.n)
    return {name: count for name, count in numbers.items() if count}


def _rate(connection: Connection, batch_id: int) -> float:
    final = (int(Status.SUCCEEDED), int(Status.DEAD), int(Status.CANCELLED))
    recent = (
        tally.c.batch_id == batch_id,
        tally.c.created_at > utc_after(-RATE_WINDOW_S),
        tally.c.state.in_(final),
        tally.c.delta > 0,
    )
    query = select(func.sum(tally.c.delta), func.min(seconds_until(tally.c.created_at))).where(
        *recent
    )
    count, oldest_s = connection.execute(query).one()
    if not count:
        return 0.0
    return round(int(count) / max(1.0, -float(oldest_s)), 2)


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
