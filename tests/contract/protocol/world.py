"""A small world around the ledger: two agents, a relay and a reaper, with random faults.

The faults follow from a seed. The ledger is the real one. The world does in its simplest form what
the loop does with the ledger's answers.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import update

from docllm.agent.lease import Lease
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.recovery import reaping, sweeping
from docllm.agent.ports import ClaimAnswer, Row, Verdict
from docllm.agent.ports.outcome import Outcome, Released, Snooze
from docllm.producer.ledger import cancel, outbox
from docllm.producer.ports import Item
from docllm.producer.publishing.relay import Relay
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import WAITING, Status
from tests.contract.protocol.topics import LETTERS, READ, TIER, BrokenError, Bus, View
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
)

MAX_ATTEMPTS = 6
AGAIN_AT_ONCE = Snooze(RETRY.failure, RETRY.spent, 0.0)


@dataclass(slots=True, eq=False)
class Run:
    """A claimed task whose call is under way."""

    row: Row
    owner: int
    view: View
    offset: int


@dataclass(slots=True, eq=False)
class Agent:
    """One process: its newest lease, its views and its calls."""

    lease: Lease
    views: list[View] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    # Claims without an answer that were given up.
    doubts: list[tuple[int, int]] = field(default_factory=list)


class World:
    """Takes steps; `seed` decides the random ones, `quirks` name this world's planted mistakes."""

    def __init__(
        self,
        ledger_db: LedgerDatabase,
        seed: int,
        *,
        tasks: int = 1,
        losses: int = 0,
        cancels: int = 0,
        quirks: Sequence[str] = (),
    ) -> None:
        self.ledger_db, self.quirks = ledger_db, quirks
        self.random = Random(seed)  # noqa: S311 - a schedule, no secret
        self.losses, self.cancels, self.lossy = losses, cancels, losses > 0
        self.bus = Bus(ledger_db, only_loss_counts="only loss counts" in quirks)
        self.seen: Counter[str] = Counter()
        self.newest_claim: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.dead_leases: list[Lease] = []
        self.found: list[int] = []
        ledger_db.empty()
        self.tasks = ledger_db.load(*(f"task {number}" for number in range(tasks)))
        ledger_db.run(
            lambda c: outbox.place(
                c, GROUP, "tasks", [Item(outbox.TASK, task_id, 0) for task_id in self.tasks]
            )
        )
        topics = Topics(GROUP, ("30s",))
        self.relay = Relay(
            transactions=ledger_db.transactions,
            publisher=self.bus,
            topics=topics,
            clock=SystemClock(),
        )
        self.agents = [Agent(ledger_db.agent(), [self.bus.assign(topic)]) for topic in READ]
        self.relay_all()

    def relay_orders(self) -> None:
        self.bus.delivery = self.random.choice(
            ["delivered", "delivered", "delivered", "failed", "unreported"]
        )
        self.relay_all()

    def relay_all(self) -> None:
        self.ledger_db.ago(tables.outbox.c.due_at, 1)
        asyncio.run(self.relay.relay_once())

    # ---- an agent's work

    def claim(self) -> None:
        offered = [(agent, *offer) for agent in self.agents for offer in self.offered(agent)]
        if offered:
            self.claim_one(*self.random.choice(offered), lost=self.random.random() < 0.15)

    def offered(self, agent: Agent) -> list[tuple[View, int]]:
        """Let an agent read on; return the records of all tasks that it has no call for."""
        for view in agent.views:
            self.bus.read(view)
        busy = {run.row.task_id for run in agent.runs}
        return [
            (view, offset)
            for view in agent.views
            for offset, (task_id, _) in view.records.items()
            if task_id not in busy
        ]

    def take(self, agent: Agent, which: int = 0) -> Run:
        """Claim an offered task, in a schedule where this must succeed; `which` counts from 0."""
        self.claim_one(agent, *self.offered(agent)[which])
        return agent.runs[-1]

    def claim_one(self, agent: Agent, view: View, offset: int, *, lost: bool = False) -> None:
        task_id, fence = view.records[offset]
        owner = agent.lease.next_owner()
        records = [self.ledger_db.record(task_id, fence)]
        answer, row = self.ledger_db.answers(records, owner)[task_id]
        if lost and self.random.random() < 0.5:
            if answer is ClaimAnswer.CLAIMED:
                self.newest_claim[task_id] = owner
            agent.doubts.append((owner, task_id))
            return
        if lost:
            answer, row = self.ledger_db.answers(records, owner)[task_id]
        self.seen[answer.value] += 1
        if answer is ClaimAnswer.CLAIMED and row is not None:
            if fence < row.fence:
                raise BrokenError("a record with an old fence claims its task")
            self.newest_claim[task_id] = owner
            agent.runs.append(Run(row, owner, view, offset))
        elif answer in {ClaimAnswer.DONE, ClaimAnswer.STALE} or (
            answer is ClaimAnswer.HELD and "held is skipped" in self.quirks
        ):
            view.finish(offset)
        elif answer in {ClaimAnswer.CONFLICT, ClaimAnswer.UNKNOWN}:
            raise BrokenError(f"P9 a good record is {answer.value}")

    def settle(self) -> None:
        running = [(agent, run) for agent in self.agents for run in agent.runs]
        if running:
            agent, run = self.random.choice(running)
            retry = RETRY if run.row.counted_before + 1 < MAX_ATTEMPTS else DEAD
            outcome = self.random.choice(
                [SUCCEEDED, retry, retry, RELEASED, RELEASED, AGAIN_AT_ONCE]
            )
            self.settle_one(agent, run, outcome, lost=self.random.random() < 0.2)

    def settle_one(self, agent: Agent, run: Run, outcome: Outcome, *, lost: bool = False) -> None:
        task_id, again = run.row.task_id, isinstance(outcome, Released | Snooze)
        if "publish first" in self.quirks and outcome in (RETRY, DEAD):
            topic = TIER if outcome is RETRY else LETTERS
            self.bus.append(topic, task_id, run.row.fence + (outcome is RETRY))
        before = self.ledger_db.task(task_id)
        verdict = self.ledger_db.settle(run.row, run.owner, outcome)
        if self.ledger_db.task(task_id) != before:
            self.note_accepted(run, before)
        if lost and not again:
            verdict = self.ledger_db.settle(run.row, run.owner, outcome)
        agent.runs.remove(run)
        self.seen[verdict.value] += 1
        passes = verdict is Verdict.CANCELLED or (
            verdict is Verdict.SETTLED if not again else "release commits" in self.quirks
        )
        if passes or (verdict is Verdict.SUPERSEDED and "superseded passes" in self.quirks):
            run.view.finish(run.offset)

    def note_accepted(self, run: Run, before: Any) -> None:
        if self.newest_claim[run.row.task_id] != run.owner:
            raise BrokenError("P2 a settle is accepted for a superseded claim")
        if run.owner in self.accepted:
            raise BrokenError("P2 two accepted settles for one claim")
        self.accepted.add(run.owner)
        self.seen["late settle"] += before.status == Status.PENDING

    def release_doubts(self) -> None:
        agent = self.random.choice(self.agents)
        for owner, task_id in agent.doubts:
            self.ledger_db.call(claiming.release, owner, [task_id])
        agent.doubts.clear()

    def commit(self) -> None:
        for agent in self.agents:
            for view in agent.views:
                self.bus.commit(view)

    # ---- what happens to agents

    def rebalance(self) -> None:
        """Move a topic, perhaps back to the same agent; the old agent notices now or later."""
        topic, new = self.random.choice(READ), self.random.choice(self.agents)
        self.move(topic, new)
        for agent in self.agents:
            if agent is new or self.random.random() < 0.7:
                agent.views = [view for view in agent.views if view.current]

    def move(self, topic: str, new: Agent) -> None:
        for agent in self.agents:
            for view in agent.views:
                view.current &= view.topic != topic
        new.views.append(self.bus.assign(topic))

    def notice(self) -> None:
        for agent in self.agents:
            agent.views = [view for view in agent.views if view.current]

    def crash(self) -> None:
        """Drop an agent's calls, views and doubts; the process starts again under a new lease."""
        agent = self.random.choice(self.agents)
        self.dead_leases.append(agent.lease)
        topics = [view.topic for view in agent.views if view.current]
        agent.lease, agent.views, agent.runs, agent.doubts = self.ledger_db.agent(), [], [], []
        for topic in topics:
            self.random.choice(self.agents).views.append(self.bus.assign(topic))

    def declare_lost(self) -> None:
        """Declare a dead or a living incarnation lost."""
        lease = self.random.choice([*self.dead_leases, self.random.choice(self.agents).lease])
        lease.is_lost |= self.ledger_db.run(lambda c: leasing.declare_lost(c, lease.agent_id))

    def register_anew(self) -> None:
        for agent in self.agents:
            if agent.lease.is_lost:
                agent.lease = self.ledger_db.agent()

    def find(self) -> None:
        """Let the reaper read; it resets in a later step, when everything may have changed."""
        self.found = self.ledger_db.run(lambda c: reaping.orphans(c, GROUP)) + self.ledger_db.run(
            lambda c: reaping.overdue(c, GROUP)
        )

    def reset(self) -> None:
        for reset in (reaping.reset_orphans, reaping.reset_overdue):
            tasks = self.ledger_db.call(reset, GROUP, self.found)
            self.seen["reaped"] += tasks.waiting + tasks.dead

    def expire(self) -> None:
        """End the time of all running claims, and let the reaper see it at once."""
        self.end_claims()
        self.find()
        self.reset()

    # ---- time, a person, Kafka

    def due(self) -> None:
        self.make_due(*WAITING)

    def end_claims(self) -> None:
        if "no end of claims" not in self.quirks:
            self.make_due(Status.PROCESSING)

    def make_due(self, *states: Status, seconds: float = 1.0) -> None:
        change = (
            update(tables.task)
            .where(tables.task.c.status.in_(states))
            .values(due_at=utc_after(-seconds))
        )
        self.ledger_db.run(lambda c: c.execute(change))

    def cancel(self) -> None:
        if self.cancels:
            self.cancels -= 1
            self.ledger_db.cancel()
        if self.ledger_db.batch().cancelled:
            batch_id = self.ledger_db.batch(BATCH).id
            self.ledger_db.run(lambda c: cancel.cancel_page(c, batch_id))

    def lose_records(self) -> None:
        """Let Kafka lose the uncommitted records of a topic."""
        if self.losses:
            self.losses -= 1
            self.bus.lose(self.random.choice(READ))

    def sweep(self) -> None:
        if self.lossy and "no sweep" not in self.quirks:
            self.make_due(*WAITING, seconds=700.0)
            topics_by_status = [sweeping.StatusTopics(status, READ, None) for status in WAITING]
            self.ledger_db.run(
                lambda c: sweeping.replace_lost_records(c, GROUP, topics_by_status, 600.0)
            )
