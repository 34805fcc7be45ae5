"""Makes outcomes durable, in groups. Every attempt ends here, and nowhere else.

An outcome stays here until the ledger has given its verdict. Whatever goes wrong, no offset moves
before that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.execution.publishing import Publishing
from agent.inflight.delivery import Delivery
from agent.outcome import Dead, Failure, Outcome, Succeeded
from agent.ports import Clock, Ledger, Settlement, Verdict
from schemas.runtime import crash

# A smaller group than GATHER waits GATHER_S for more outcomes, because a transaction costs as much
# for one as for many. No slot waits for it.
GATHER, GATHER_S = (
    64,
    0.01,
)


Ended = tuple[Delivery, Outcome, Verdict]


class Settler:
    """Writes outcomes in groups; those that come during one write form the next group."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        group_size: int,
        group_bytes: int,
        reply_limit_bytes: int,
        clock: Clock,
        settled: Callable[[Sequence[Ended]], None],
        publishing: Publishing,
    ) -> None:
        self._ledger = ledger
        self._group_size = group_size
        self._group_bytes = group_bytes
        self._reply_limit_bytes = reply_limit_bytes
        self._clock = clock
        self._settled = settled
        self._publishing = publishing
        self._waiting: deque[tuple[Delivery, Outcome, Settlement]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, entry: Delivery, outcome: Outcome) -> None:
        """Take the outcome of a claimed delivery."""
        if entry.row is None:
            raise AssertionError(f"task {entry.task_id} has an outcome without a claim")
        fitting = self._fit(outcome)
        self._waiting.append(
            (
                entry,
                fitting,
                Settlement(entry.row, entry.owner, fitting, entry.route, entry.origin()),
            )
        )
        self._idle.clear()
        self._wake.set()

    @property
    def unsettled(self) -> int:
        """Return how many outcomes wait for the next group."""
        return len(self._waiting)

    async def idle(self) -> None:
        """Return once every outcome has its verdict."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settle groups until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if len(self._waiting) < GATHER:
                    await self._clock.sleep(GATHER_S)
                await self._settle(self._group())
            self._idle.set()

    def _group(self) -> list[tuple[Delivery, Outcome, Settlement]]:
        group: list[tuple[Delivery, Outcome, Settlement]] = []
        size = 0
        while self._waiting and len(group) < self._group_size and size < self._group_bytes:
            group.append(self._waiting.popleft())
            outcome = group[-1][1]
            size += len(outcome.body) if isinstance(outcome, Succeeded) else 0
        return group

    async def _settle(self, group: list[tuple[Delivery, Outcome, Settlement]]) -> None:
        verdicts, orders = await self._ledger.settle([settlement for _, _, settlement in group])
        crash.reach("settle.committed")
        self._settled(
            [
                (entry, outcome, verdict)
                for (entry, outcome, _), verdict in zip(group, verdicts, strict=True)
            ]
        )
        if orders:
            self._publishing.send(orders)

    def _fit(self, outcome: Outcome) -> Outcome:
        """Replace a reply that no statement can carry by an error; a reply is never cut short."""
        if isinstance(outcome, Succeeded) and len(outcome.body) > self._reply_limit_bytes:
            text = (
                f"the stored reply has {len(outcome.body)} bytes, "
                f"the limit is {self._reply_limit_bytes}"
            )
            return Dead(Failure("REPLY_TOO_LARGE", text), replace(outcome.spent))
        return outcome
