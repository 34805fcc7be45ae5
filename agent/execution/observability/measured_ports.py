"""Ports that measure what passes through them; everything else is left as it is."""

from collections.abc import Sequence
from typing import Protocol

from docllm.agent.execution.observability.ledger_wrapper import LedgerWrapper
from docllm.agent.ports import (
    Claimable,
    ClaimAnswer,
    ClaimAnswers,
    Clock,
    Ledger,
    Settlement,
    Verdict,
)
from docllm.producer.ports import Order

SAMPLE_S = 1.0  # waits are sampled for at most one claim in this time


class Measures(Protocol):
    """Takes what the ports measure; the agent's metrics do. Times are in seconds."""

    def waited(self, wait_s: float) -> None:
        """Take how long a task had been due when it was claimed."""
        ...

    def claimed(self, took_s: float) -> None:
        """Take the time of a transaction that claimed tasks."""
        ...

    def settled(self, took_s: float, tasks: int) -> None:
        """Take the time of a transaction that settled so many tasks."""
        ...


class MeasuredLedger(LedgerWrapper):
    """A ledger that times claims and settles, and samples how long tasks have waited.

    A claim overwrites the time from which a task was due. So the ledger is asked before, once in
    `SAMPLE_S`: a read by keys, whatever the number of tasks.
    """

    def __init__(self, ledger: Ledger, *, metrics: Measures, clock: Clock) -> None:
        super().__init__(ledger)
        self._metrics = metrics
        self._clock = clock
        self._sampled_at_s = float("-inf")

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        """Claim, and note how long it took."""
        before = await self._sample(records)
        began_s = self._clock.now_s()
        answers = await super().claim(records, owner, claim_s, with_suspects=with_suspects)
        self._metrics.claimed(self._clock.now_s() - began_s)
        for task_id, (answer, row) in before.items():
            is_claimed = answers[task_id][0] is ClaimAnswer.CLAIMED
            if is_claimed and answer is ClaimAnswer.CLAIMABLE and row is not None:
                self._metrics.waited(-row.due_in_s)
        return answers

    async def _sample(self, records: Sequence[Claimable]) -> ClaimAnswers:
        """Return what the ledger says before a claim; nothing if it was asked a moment ago."""
        now_s = self._clock.now_s()
        if now_s < self._sampled_at_s + SAMPLE_S:
            return {}
        self._sampled_at_s = now_s
        return await self.ask(records)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle, and note how long it took for how many tasks."""
        began_s = self._clock.now_s()
        settled = await super().settle(settlements)
        self._metrics.settled(self._clock.now_s() - began_s, len(settlements))
        return settled
