"""A replay over a real ledger, with a fake clock and a fake publisher."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from docllm.agent.maintenance.repair.replayer import Replayer
from docllm.producer.ledger import replay_progress
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest, ReplayRun
from docllm.producer.ports import Refusal
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay.applier import Applier
from docllm.producer.replay.following import Replay
from docllm.producer.replay.runs import Page
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.topics import Topics
from tests.support.ledger_database import GROUP, LedgerDatabase

Result = TypeVar("Result")


class FakeClock:
    """Time that passes only in sleeps; `witness` and `between` are called after each."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.witness: Callable[[], None] = lambda: None
        self.between: Callable[[], Awaitable[None]] | None = None

    def now_s(self) -> float:
        return self.now

    def utc_s(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += delay_s
        self.witness()
        if self.between is not None:
            await self.between()


class FakePublisher:
    """Accepts every record, or refuses all while it is down."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []
        self.down = False

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        if self.down:
            return [Refusal("no broker", permanent=False)] * len(records)
        self.records += records
        return [None] * len(records)

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        pass


class Site:
    """The command's part of a replay over this ledger, and its notes."""

    def __init__(self, ledger_db: LedgerDatabase) -> None:
        self.ledger_db = ledger_db
        self.clock = FakeClock()
        self.publisher = FakePublisher()
        self.notes: list[str] = []
        self.progress: list[int] = []
        relay = Relay(
            transactions=ledger_db.transactions,
            publisher=self.publisher,
            topics=Topics(GROUP),
            clock=self.clock,
        )
        self.applier = Applier(
            transactions=ledger_db.transactions,
            relay=relay,
            group=GROUP,
            max_attempts_of=lambda _: 5,
            limit_of=lambda _: math.inf,
            apart=self.apart,
            failed=lambda _: None,
        )
        self.replay = Replay(
            transactions=ledger_db.transactions,
            relay=relay,
            applier=self.applier,
            clock=self.clock,
            group=GROUP,
            progress=lambda done, _total: self.progress.append(done),
            note=self.notes.append,
        )

    async def apart(self, call: Callable[[], Result]) -> Result:
        return call()

    async def stored(self, request: ReplayRequest) -> ReplayRun:
        """Store a run while no agent is alive."""
        run = await self.replay.store("ann", request)
        assert run is not None
        self.agents_die()
        return run

    def agents_die(self) -> None:
        """Let each agent's last heartbeat be a minute old."""
        self.ledger_db.ago(tables.agent.c.seen_at, 60)

    def replayer(self) -> Replayer:
        """Return the duty of an agent."""
        return Replayer(
            transactions=self.ledger_db.transactions,
            applier=self.applier,
            clock=self.clock,
            group=GROUP,
        )

    def skip_waits(self) -> None:
        """Let the sleeps that the rate causes pass at once, in the database too."""
        self.clock.witness = lambda: self.ledger_db.ago(tables.replay_run.c.next_at, 1)

    def page(self, run: ReplayRun) -> Page:
        """Return the next page of tasks."""
        found = self.ledger_db.call(self.applier._apply_tasks, run, 0)
        assert found is not None
        return found

    def counts(self, run: ReplayRun) -> dict[ItemState, int]:
        found = self.ledger_db.call(replay_progress.find, run.id)
        assert found is not None
        return found.counts
