"""A wrapper around a ledger; subclasses observe its claims and settles."""

from collections.abc import Sequence

from docllm.agent.ports import Claimable, ClaimAnswers, Ledger, Settlement, Verdict
from docllm.producer.ports import Order


class LedgerWrapper:
    """Passes everything on. A subclass adds what it does around a claim or a settle."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.ask = ledger.ask
        self.bodies = ledger.bodies
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
        """Claim, as the ledger does."""
        return await self._ledger.claim(records, owner, claim_s, with_suspects=with_suspects)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle, as the ledger does."""
        return await self._ledger.settle(settlements)
