"""A wrapper around the ledger that traces claims and settles, and changes nothing else."""

from collections.abc import Sequence

from docllm.agent.execution.observability.attempt_traces import AttemptTraces
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


class TracedLedger(LedgerWrapper):
    """A ledger that tells when attempts begin and end."""

    def __init__(self, ledger: Ledger, *, traces: AttemptTraces, clock: Clock) -> None:
        super().__init__(ledger)
        self._traces = traces
        self._clock = clock

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        """Claim, and begin the attempts at what was claimed."""
        start_s = self._clock.utc_s()
        answers = await super().claim(records, owner, claim_s, with_suspects=with_suspects)
        publications = (record.publication for record in records)
        claimed = (
            publication
            for publication in publications
            if answers[publication.task_id][0] is ClaimAnswer.CLAIMED
        )
        self._traces.claimed(claimed, owner, start_s)
        return answers

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle, and emit the spans of the attempts that ended."""
        start_s = self._clock.utc_s()
        verdicts, orders = await super().settle(settlements)
        self._traces.settled(settlements, verdicts, start_s)
        return verdicts, orders
