"""Reads the agents of a group from the ledger, with what each reported of itself. Read only."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, or_, select

from docllm.producer.ledger.claiming_agent import agent_in
from docllm.producer.text.agent_sentences import (
    Sentence,
    blocked,
    joined,
    sentences,
)
from docllm.producer.text.times import written
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, from_json
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.query_plans import along_due, in_group
from docllm.schemas.ledger.sql import seconds_until, utc_after
from docllm.schemas.ledger.tables import agent, batch, task
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.states import Status

# How long after its last heartbeat an agent is shown: at most, and if it stopped.
SHOWN_S = 600.0
STOPPED_SHOWN_S = 30.0
MAX_CLAIMS = 20_000  # claims that are searched for those of lost agents
NAMED_AGENTS = 5
# Tasks that are named of each agent, and how many of the oldest claims are searched for them.
NAMED_TASKS = 3
NEAR_CLAIMS = 500
REPORTED_S = 86_400.0  # how long after an agent's last heartbeat its types count as known
_MAX_REPORTS = 1000  # that are read, the latest first: restarts leave many rows
REAPER = " (reaper)"  # the suffix in the name of a repair agent


class AgentState(StrEnum):
    """The state of an agent; the names are shown to people and programs."""

    ALIVE = "alive"
    SILENT = "silent"  # its last heartbeat is some seconds old
    LOST = "lost"  # it was declared lost; its tasks are reset within seconds
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent; `silent_s` is the age of its last heartbeat by the database's clock.

    `reasons` are in words, the worst first. An agent that has not run yet and a repair agent have
    no report. `holds_tasks` is known of a lost agent only: False once all its tasks are reset.
    `tasks` are the first of the oldest that it has claimed, each with its `batch`, `id` and
    `claimed_at`, UTC without a zone.
    """

    id: int
    name: str
    state: AgentState
    silent_s: float
    version: str = ""
    report: AgentReport | None = None
    reasons: tuple[Sentence, ...] = ()
    holds_tasks: bool | None = None
    release: str = ""
    tasks: tuple[Mapping[str, Any], ...] = ()

    @property
    def works(self) -> bool:
        """Whether this agent takes tasks: it is alive, and no repair agent."""
        return self.state is AgentState.ALIVE and not self.is_repair_agent

    @property
    def is_repair_agent(self) -> bool:
        """Whether this process takes no tasks and does only duties."""
        return self.name.endswith(REAPER)

    @property
    def notice(self) -> str:
        """The reasons on one line."""
        return joined(self.reasons)

    def as_json(self) -> dict[str, Any]:
        """Return the form of `status --json`, version 1."""
        report = self.report
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "holds_tasks": self.holds_tasks,
            "silent_s": self.silent_s,
            "notice": self.notice,
            "version": self.version,
            "release": self.release,
            "slots": None if report is None else report.slots,
            "running": None if report is None else report.running,
            "report": None if report is None else asdict(report),
            "tasks": [
                {**claimed, "claimed_at": written(claimed["claimed_at"])} for claimed in self.tasks
            ],
        }


def read_agents(connection: Connection, group: str) -> tuple[AgentStatus, ...]:
    """Return the agents of a group that were seen lately, in the order in which they started."""
    silent = (-seconds_until(agent.c.seen_at)).label("silent_s")
    recent = or_(agent.c.stopped_at.is_(None), agent.c.stopped_at > utc_after(-STOPPED_SHOWN_S))
    query = select(agent, silent).where(
        agent.c.group_name == group, agent.c.seen_at > utc_after(-SHOWN_S), recent
    )
    in_order = query.order_by(agent.c.started_at, agent.c.id)
    agents = [_agent_status(row) for row in connection.execute(in_order)]
    lost = {status.id for status in agents if status.state is AgentState.LOST}
    holders = _holders(connection, lost) if lost else set()
    return tuple(
        replace(status, holds_tasks=status.id in holders) if status.id in lost else status
        for status in agents
    )


def other_groups(connection: Connection, group: str) -> list[str]:
    """Return the other groups of the ledger that have running agents."""
    others = agent.c.group_name != group
    names = select(agent.c.group_name).where(others, agent_rows.alive()).distinct()
    return sorted(connection.execute(names).scalars())


def _agent_status(row: Row[Any]) -> AgentStatus:
    silent_s = round(max(0.0, float(row.silent_s)), 1)
    if row.stopped_at is not None:
        state = AgentState.STOPPED
    elif row.lost_at is not None:
        state = AgentState.LOST
    else:
        state = AgentState.SILENT if silent_s > agent_rows.SILENT_S else AgentState.ALIVE
    # The last report of an agent that stopped says nothing about now.
    report = None if state is AgentState.STOPPED else from_json(row.report)
    reasons: list[Sentence] = []
    if report is not None:
        # Of an agent that is not alive, the last report says nothing about its loop now.
        loop = blocked(report, row.name) if state is AgentState.ALIVE else []
        reasons = [*loop, *sentences(report, row.group_name)]
    return AgentStatus(
        row.id,
        row.name,
        state,
        silent_s,
        row.version,
        report,
        tuple(reasons),
        release=row.release_name,
    )


def reasons(agents: Sequence[AgentStatus]) -> list[Sentence]:
    """Return what living agents report; the same trouble once."""
    first: dict[tuple[str, str], Sentence] = {}
    for status in agents:
        for sentence in status.reasons if status.state is AgentState.ALIVE else ():
            first.setdefault(sentence.about, sentence)
    return list(first.values())


def missing(agents: Sequence[AgentStatus]) -> Iterator[Sentence]:
    """Yield that agents are silent, or are lost and still hold tasks.

    The tasks of a lost agent run again within seconds. Then nothing waits for that agent.
    """
    for status in agents:
        text = f"agent {status.name} {status.state}, {status.silent_s:.0f} s"
        if status.state is AgentState.SILENT:
            yield Sentence(Urgency.AGENT_SILENT, ("agent", status.name), text)
        elif status.holds_tasks:
            held = f"{text}; its tasks are not reset yet"
            yield Sentence(Urgency.AGENT_LOST, ("agent", status.name), held)


def _holders(connection: Connection, agents: Collection[int]) -> set[int]:
    """Return which of these agents hold one of the claims whose time ends first.

    The claims of a lost agent are older than nearly all others.
    """
    claims = (
        select(task.c.owner)
        .where(task.c.status == int(Status.PROCESSING))
        .order_by(task.c.due_at)
        .limit(MAX_CLAIMS)
        .subquery()
    )
    holder = agent_in(claims.c.owner)
    return set(connection.execute(select(holder).where(holder.in_(agents)).distinct()).scalars())


def with_tasks(
    connection: Connection, group: str, agents: Sequence[AgentStatus]
) -> tuple[AgentStatus, ...]:
    """Return the agents with the oldest tasks that each has, at most NAMED_TASKS."""
    own = batch.alias("own")
    query = (
        select(own.c.name, task.c.task_key, task.c.claimed_at, task.c.owner)
        .join(own, own.c.id == task.c.batch_id)
        .where(task.c.status == int(Status.PROCESSING), in_group(group))
        .order_by(task.c.due_at)
        .limit(NEAR_CLAIMS)
    )
    claimed: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in connection.execute(along_due(query)):
        key = row.task_key.decode(errors="backslashreplace")
        of_task = {"batch": row.name, "id": key, "claimed_at": row.claimed_at}
        claimed[agent_of(row.owner)].append(of_task)
    return tuple(
        replace(status, tasks=tuple(claimed[status.id][:NAMED_TASKS])) for status in agents
    )


def outliers(agents: Sequence[AgentStatus]) -> Iterator[str]:
    """Yield sentences that name the living agents whose version or settings differ from others."""
    working = [status for status in agents if status.works]
    versions = [(status, status.version) for status in working]
    settings = [(status, status.report.settings) for status in working if status.report is not None]
    for what, marks in (("another version", versions), ("other settings", settings)):
        common = Counter(mark for _, mark in marks).most_common(1)
        names = [status.name for status, mark in marks if mark != common[0][0]] if common else []
        if names:
            usual = next(status.name for status, mark in marks if mark == common[0][0])
            rest = f" and {len(names) - NAMED_AGENTS} more" if len(names) > NAMED_AGENTS else ""
            verb = "has" if len(names) == 1 else "have"
            yield f"{', '.join(names[:NAMED_AGENTS])}{rest} {verb} {what} than {usual}"


def unread(agents: Sequence[AgentStatus]) -> int:
    """Return how many records of the inbox, which are no tasks yet, the living agents see."""
    reports = [status.report for status in agents if status.works and status.report is not None]
    return sum(report.lag.get("inbox", 0) for report in reports)


def read_types(connection: Connection, group: str) -> frozenset[str]:
    """Return the types that an agent of the group has reported within the last day."""
    query = (
        select(agent.c.report)
        .where(
            agent.c.group_name == group,
            agent.c.seen_at > utc_after(-REPORTED_S),
            agent.c.report.is_not(None),
        )
        .order_by(agent.c.seen_at.desc())
        .limit(_MAX_REPORTS)
    )
    reports = map(from_json, connection.execute(query).scalars())
    return frozenset(name for report in reports if report is not None for name in report.types)
