"""The duty that applies the replays that people ordered.

The command stores a run and may end; any agent applies it. How: `producer/replay/applier.py`.
"""

from dataclasses import dataclass, field

from docllm.agent.maintenance.duty import Duty, repeat
from docllm.producer.ledger import replay_progress
from docllm.producer.replay.applier import Applier
from docllm.producer.replay.runs import Cursor
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class Replayer:
    """Applies one page of each unfinished run in turn, so that a slow run holds up no other."""

    transactions: Transactions
    applier: Applier
    clock: Clock
    group: str
    _duty: Duty = field(init=False)
    _cursors: dict[int, Cursor] = field(default_factory=dict, init=False)
    _rounds: int = field(default=0, init=False)
    _wait_s: float = field(default=CHECK_EVERY_S, init=False)

    def __post_init__(self) -> None:
        self._duty = Duty(name="applying replays", work=self.apply, clock=self.clock)

    async def run(self) -> None:
        """Apply runs until cancelled; look each second whether there is one."""
        await repeat([self._duty], self._pause)

    async def apply(self) -> None:
        """Apply the next page of each unfinished run."""
        # Set before the work, so that a whole pause follows a failure.
        wait_s, self._wait_s = CHECK_EVERY_S, CHECK_EVERY_S
        runs = await self.transactions.read(replay_progress.unfinished, self.group)
        cursors: dict[int, Cursor] = {}
        # A run that fails holds up those behind it in this round only.
        first = self._rounds % max(len(runs), 1)
        self._rounds += 1
        for run in (*runs[first:], *runs[:first]):
            step = await self.applier.advance(run, self._cursors.get(run.id, Cursor()))
            cursors[run.id] = step.cursor
            wait_s = min(wait_s, step.wait_s)
        self._cursors, self._wait_s = cursors, wait_s

    async def _pause(self) -> None:
        await self.clock.sleep(self._wait_s)
