"""Reads a group's status from the ledger: batches, agents, failures, and why nothing runs.

Read only. No query in here grows with the number of tasks.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sqlalchemy import Connection

from docllm.producer.ledger import (
    guards,
    hook_orders,
    joins,
    long_waits,
    outbox,
    quarantine,
    replay_progress,
)
from docllm.producer.ledger.long_waits import LongWait, WaitingTasks
from docllm.producer.ledger.replay_progress import ReplayRun
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.status import agent_status, batch_status, releases
from docllm.producer.ledger.status.agent_status import AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.releases import ReleaseStatus
from docllm.producer.ledger.status.retries import TiersOf, no_tiers
from docllm.producer.ledger.waiting_rows import LedgerWait
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.pace import duration
from docllm.producer.text.times import written
from docllm.producer.text.urgency import Urgency
from docllm.schemas.ledger.migrations import ledger_id
from docllm.schemas.task.guard import Guard
from docllm.schemas.text.wording import number_of

MAX_QUARANTINED = 1000  # records that a screen counts, each second


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Everything that `status` shows."""

    group: str
    ledger: str
    agents: tuple[AgentStatus, ...]
    batches: tuple[BatchStatus, ...]
    orders: int
    waits: tuple[Sentence, ...] = ()  # why work waits, the worst first
    guards: tuple[Guard, ...] = ()
    replays: tuple[ReplayRun, ...] = ()  # stored, and not ended
    releases: tuple[ReleaseStatus, ...] = ()  # of its agents, the newest work first
    archived: int = 0  # how many batches are archived, if none is shown
    quarantined: int = 0  # records that are no task, counted up to the reader's limit
    oldest_order: int = 0  # the id of the oldest publish order, 0 if there is none
    held: tuple[LongWait, ...] = ()  # tasks that a refused call lets wait for long, by route
    waiting: tuple[LedgerWait, ...] = ()  # for what tasks wait in the ledger

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why work waits, in words, the worst first."""
        return tuple(wait.text for wait in self.waits)

    @property
    def quarantined_text(self) -> str:
        """How many records are quarantined, in words; empty if none is."""
        if not self.quarantined:
            return ""
        at_least = "at least " if self.quarantined == MAX_QUARANTINED else ""
        records = number_of(self.quarantined, "record")
        command = f"docllm dead list --group {self.group}"
        return f"quarantined, because no task of docllm: {at_least}{records}; see: {command}"

    @property
    def held_texts(self) -> tuple[str, ...]:
        """How many tasks wait for long after a refused call, for which route, and until when."""
        return tuple(
            f"after a refused call on route {wait.route}, {number_of(wait.tasks, 'task')} "
            f"{'waits' if wait.tasks == 1 else 'wait, the first'} for {duration(wait.due_s)}, "
            f"until {written(wait.due_at)}; to call now: "
            f"docllm agent resume {shlex.quote(wait.route)} --group {self.group}"
            for wait in self.held
        )

    def without_empty_batches(self) -> Self:
        """Return the status without batches that never had a task, and that nobody loads now.

        A load of which every line was bad leaves such a batch.
        """
        batches = (
            batch
            for batch in self.batches
            if batch.counts["total"] or batch.half_loaded or batch.cancelled
        )
        return replace(self, batches=tuple(batches))

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`, version 1."""
        head = {
            "version": 1,
            "group": self.group,
            "ledger": self.ledger,
            "orders": self.orders,
            "quarantined": self.quarantined,
            "reasons": list(self.reasons),
            "waits": [{"code": wait.code, "text": wait.text} for wait in self.waits],
            "waiting": [wait.as_json() for wait in self.waiting],
        }
        head |= {"guards": [guards.as_json(guard) for guard in self.guards]}
        head |= {"replays": [replay_progress.as_json(run) for run in self.replays]}
        return head | {
            "agents": [agent.as_json() for agent in self.agents],
            "batches": [row.as_json() for row in self.batches],
            "releases": [release.as_json() for release in self.releases],
        }


def read_group(
    connection: Connection,
    group: str,
    name: str | None = None,
    *,
    archived: bool = False,
    max_quarantined: int = MAX_QUARANTINED,
    tiers_of: TiersOf = no_tiers,
) -> GroupStatus:
    """Return the status of a group, or of one of its batches; `archived` includes those too.

    At most `max_quarantined` records of the quarantine are counted.
    """
    agents = agent_status.read_agents(connection, group)
    batches = tuple(
        batch_status.read_batches(connection, group, name, archived=archived, tiers_of=tiers_of)
    )
    waiting = outbox.waiting(connection, group)
    raised = tuple(
        guard for guard in guards.raised(connection, group) if name in {None, guard.batch}
    )
    waits = _waits(group, agents, batches, raised, hook_orders.given_up(connection, group))
    of_releases = releases.read_releases(connection, group)
    waits += tuple(
        Sentence(Urgency.RELEASE_WORSE, ("release", release.name), release.warning)
        for release in of_releases
        if release.is_worse
    )
    replays = tuple(replay_progress.unfinished(connection, group))
    any_open = any(batch.open for batch in batches)
    if any(batch.counts["processing"] for batch in batches):
        agents = agent_status.with_tasks(connection, group, agents)
    any_pending = any(batch.counts["pending"] for batch in batches)
    held = long_waits.read(connection, WaitingTasks(group)) if any_pending else []
    return GroupStatus(
        group,
        ledger_id(connection),
        agents,
        batches,
        waiting.orders,
        tuple(sorted(waits, key=lambda wait: wait.urgency)),
        raised,
        replays,
        of_releases,
        0 if batches else archive_rows.archived(connection, group),
        quarantine.count_left(connection, group, max_quarantined),
        waiting.oldest_id,
        tuple(held),
        tuple(joins.ledger_waits(connection, group)) if any_open else (),
    )


def _waits(
    group: str,
    agents: Sequence[AgentStatus],
    batches: Sequence[BatchStatus],
    raised: Sequence[Guard],
    hooks_given_up: Sequence[str],
) -> tuple[Sentence, ...]:
    """Return why work waits, for a person.

    What agents report is included even if no batch is open, since inbox lines that nobody reads are
    in no batch yet. Types are not, since an agent learns late that no task of a type waits; nor are
    types that another agent knows, to which their tasks come.
    """
    known_types = {
        name for agent in agents if agent.works and agent.report for name in agent.report.types
    }
    waits = [
        wait
        for wait in agent_status.reasons(agents)
        if wait.urgency is not Urgency.TYPE_UNKNOWN or wait.about[1] not in known_types
    ]
    if not any(batch.open for batch in batches):
        waits = [wait for wait in waits if wait.urgency is not Urgency.TYPE_UNKNOWN]
    else:
        waits += agent_status.missing(agents)
        if not any(agent.works for agent in agents):
            text = f"no agent alive; start one: docllm agent --group {group}"
            waits.append(Sentence(Urgency.NO_AGENT, ("group", group), text))
        for guard in raised:
            text = f"guard of {guard.title}: {guard.reason}; {guard.next_step_text}"
            waits.append(Sentence(Urgency.GUARD_RAISED, ("guard", guard.title), text))
    waits += [Sentence(Urgency.HOOKS_GIVEN_UP, ("hook", text), text) for text in hooks_given_up]
    return tuple(waits)
