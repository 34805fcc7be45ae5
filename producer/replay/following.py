"""Runs a replay for the command: stores the selected items, then follows the run to its end.

The agents of the group apply a stored run. If none is alive, the command applies it too; an agent
that starts then shares the work. The command may be killed at any moment.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from docllm.producer.ledger import replay_progress
from docllm.producer.ledger.replay_progress import ReplayRequest, ReplayRun
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay import runs
from docllm.producer.replay.applier import Applier, Step
from docllm.producer.replay.runs import Cursor, Documents, DroppedError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 0.5
STILL_S = 30.0  # after so long without progress, the command says so


@dataclass(slots=True)
class ReplayReport:
    """What the command saw of a run.

    `run` is the run as it ended. `early`: the most tasks of a page that waited for their dead
    letters. `unsent`: whether the command left records to the relay of some agent.
    """

    run: ReplayRun
    early: int = 0
    unsent: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Replay:
    """Replays of one group. `progress` is told how many items are finished, of how many."""

    transactions: Transactions
    relay: Relay
    applier: Applier
    clock: Clock
    group: str
    progress: Callable[[int, int], None]
    note: Callable[[str], None]

    async def store(
        self, actor: str, request: ReplayRequest, documents: Documents | None = None
    ) -> ReplayRun | None:
        """Store the items that a request selects now; return the run, None when it has no items."""
        while True:
            try:
                nonce = secrets.token_hex(8)
                return await self._store(actor, replace(request, nonce=nonce), documents)
            except DroppedError:
                continue  # try again: each program drops others only once, at its start

    async def _store(
        self, actor: str, request: ReplayRequest, documents: Documents | None
    ) -> ReplayRun | None:
        def begin(connection: Connection) -> tuple[int, Cursor | None]:
            run_id = runs.begin(connection, self.group, actor, request)
            return run_id, runs.store(connection, self.group, run_id, request, Cursor(), documents)

        run_id, cursor = await self.transactions.write(begin)
        while cursor is not None:
            crash.reach("replay.page_stored")
            cursor = await self.transactions.write(
                runs.store, self.group, run_id, request, cursor, documents
            )
        crash.reach("replay.stored")
        return await self.transactions.write(replay_progress.find, run_id)

    async def follow(self, run: ReplayRun) -> ReplayReport:
        """Show a run's progress until it has ended; apply it if no agent is alive to do so."""
        report, cursor, applies = ReplayReport(run), Cursor(), False
        moved = run.done, self.clock.now_s()
        while not await self._ended(report):
            moved = self._note_stillness(report.run, *moved)
            if not applies and not await self.transactions.read(
                replay_progress.any_agent, self.group
            ):
                self.note(
                    f"no agent of group {self.group} is alive, so this command applies "
                    f"replay {run.id}; an agent that starts takes part"
                )
                applies = True
            if not applies:
                await self.clock.sleep(CHECK_EVERY_S)
                continue
            step = await self.applier.advance(run, cursor)
            cursor = step.cursor
            self._take_note(report, step)
            if step.wait_s > 0:
                await self.relay.relay_once()  # dead letters that a killed agent left
                await self.clock.sleep(step.wait_s)
        return report

    async def _ended(self, report: ReplayReport) -> bool:
        """Look at the run, and show how far it is; return whether it has ended."""
        run = await self.transactions.read(replay_progress.find, report.run.id)
        report.run = run or report.run
        self.progress(report.run.done, report.run.total)
        return report.run.ended_at is not None

    def _note_stillness(self, run: ReplayRun, done: int, since_s: float) -> tuple[int, float]:
        """Warn if a run makes no progress; return how far it is, and since when by the clock."""
        now_s = self.clock.now_s()
        if run.done != done:
            return run.done, now_s
        rate = run.request.rate
        if now_s - since_s < max(STILL_S, 2 / rate if rate else 0.0):
            return done, since_s
        self.note(
            f"replay {run.id} makes no progress, {run.left} of {run.total} left; see the agents' "
            "logs, "
            f"and the orders that wait: docllm status --group {self.group}"
        )
        return done, now_s

    def _take_note(self, report: ReplayReport, step: Step) -> None:
        report.unsent |= step.unsent
        if step.early > report.early:
            self.note(f"{step.early} tasks wait until their dead letters are on their topic")
            report.early = step.early
