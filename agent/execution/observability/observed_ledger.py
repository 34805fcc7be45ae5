"""A wrapper around the ledger that measures and traces claims and settles, and changes nothing."""

from collections.abc import Sequence
from typing import Protocol

from docllm.agent.execution.observability.attempt_traces import AttemptTraces
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
    """Takes what the ledger measures; the agent's metrics do. Times are in seconds."""

    def waited(self, wait_s: float) -> None:
        """Take how long a task had been due when it was claimed."""
        ...

    def claimed(self, took_s: float) -> None:
        """Take the time of a transaction that claimed tasks."""
        ...

    def settled(self, took_s: float, tasks: int) -> None:
        """Take the time of a transaction that settled so many tasks."""
        ...


class ObservedLedger:
    """A ledger that times claims and settles, samples waits, and tells when attempts begin and end.

    A claim overwrites the time from which a task was due. So the ledger is asked before, once in
    `SAMPLE_S`: a read by keys, whatever the number of tasks. What is None is not told.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock,
        metrics: Measures | None = None,
        traces: AttemptTraces | None = None,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._traces = traces
        self._sampled_at_s = float("-inf")
        self.ask = ledger.ask
        self.bodies = ledger.bodies
        self.overrides = ledger.overrides
        self.relieve = ledger.relieve
        self.join_look = ledger.join_look
        self.quarantine = ledger.quarantine

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        """Claim, note how long it took, and begin the attempts at what was claimed."""
        start_s = self._clock.utc_s()
        before = {} if self._metrics is None else await self._sample(records)
        began_s = self._clock.now_s()
        answers = await self._ledger.claim(records, owner, claim_s, with_suspects=with_suspects)
        if self._metrics is not None:
            self._metrics.claimed(self._clock.now_s() - began_s)
            for task_id, (answer, row) in before.items():
                is_claimed = answers[task_id][0] is ClaimAnswer.CLAIMED
                if is_claimed and answer is ClaimAnswer.CLAIMABLE and row is not None:
                    self._metrics.waited(-row.due_in_s)
        if self._traces is not None:
            claimed = (
                record.publication
                for record in records
                if answers[record.publication.task_id][0] is ClaimAnswer.CLAIMED
            )
            self._traces.claimed(claimed, owner, start_s)
        return answers

    async def _sample(self, records: Sequence[Claimable]) -> ClaimAnswers:
        """Return what the ledger says before a claim; nothing if it was asked a moment ago."""
        now_s = self._clock.now_s()
        if now_s < self._sampled_at_s + SAMPLE_S:
            return {}
        self._sampled_at_s = now_s
        return await self.ask(records)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle, note how long it took, and emit the spans of the attempts that ended."""
        start_s, began_s = self._clock.utc_s(), self._clock.now_s()
        verdicts, orders = await self._ledger.settle(settlements)
        if self._metrics is not None:
            self._metrics.settled(self._clock.now_s() - began_s, len(settlements))
        if self._traces is not None:
            self._traces.settled(settlements, verdicts, start_s)
        return verdicts, orders
