"""Ports that measure what passes through them; everything else is left as it is.

Tested by tests/integration/test_agent_http.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.ports import (
    LLM,
    Account,
    Call,
    CallFailed,
    Claimable,
    ClaimAnswers,
    Clock,
    Ledger,
    Reply,
    Settlement,
    Verdict,
)
from agent.reporting.metrics import AgentMetrics
from producer.ports import Order


def measured_accounts(
    account: Callable[[str], Account], metrics: AgentMetrics, clock: Clock
) -> Callable[[str], Account]:
    """Return the same accounts, whose calls are timed by route."""

    def timed(route: str) -> Account:
        of_route = account(route)
        return replace(of_route, llm=_TimedLLM(of_route.llm, route, metrics, clock))

    return timed


class _TimedLLM:
    """An account that times its calls."""

    def __init__(self, llm: LLM, route: str, metrics: AgentMetrics, clock: Clock) -> None:
        self._llm = llm
        self._route = route
        self._metrics = metrics
        self._clock = clock

    async def complete(self, call: Call) -> Reply | CallFailed:
        began_s = self._clock.now_s()
        try:
            return await self._llm.complete(call)
        finally:
            self._metrics.called(self._route, self._clock.now_s() - began_s)

    async def close(self) -> None:
        await self._llm.close()


class MeasuredLedger:
    """A ledger that times claims and settles."""

    def __init__(self, ledger: Ledger, metrics: AgentMetrics, clock: Clock) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self.ask = ledger.ask
        self.bodies = ledger.bodies
        self.relieve = ledger.relieve
        self.join_look = ledger.join_look
        self.quarantine = ledger.quarantine

    async def claim(
        self, records: Sequence[Claimable], owner: int, deadline_s: float, *, suspects: bool = False
    ) -> ClaimAnswers:
        """Claim, and note how long it took."""
        began_s = self._clock.now_s()
        answers = await self._ledger.claim(records, owner, deadline_s, suspects=suspects)
        self._metrics.claimed(self._clock.now_s() - began_s)
        return answers

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Settle, and note how long it took and how many tasks it were."""
        began_s = self._clock.now_s()
        settled = await self._ledger.settle(settlements)
        self._metrics.settled(self._clock.now_s() - began_s, len(settlements))
        return settled
