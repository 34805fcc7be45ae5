"""A ledger of grants for tests: the accounts in memory, which can be away and forget.

The test moves its clock. One suite runs on this ledger and on Redis, so what is proved with this
ledger holds for Redis.
"""

from collections.abc import Callable, Sequence

from agent.quota.account import QuotaAccount
from agent.quota.ledger import QuotaAnswer, QuotaAwayError, QuotaRequest


class MemoryQuotaServer:
    """Stands in for Redis: it can be away, lose answers, and lose its memory."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.away = False
        self.loses_answers = False
        self.accounts: dict[str, QuotaAccount] = {}
        self.exchanges = 0

    def flush(self) -> None:
        """Lose everything."""
        self.accounts.clear()

    def ledger(self, agent: str) -> "MemoryQuotaLedger":
        """Return the ledger as one agent reaches it."""
        return MemoryQuotaLedger(self, agent)


class MemoryQuotaLedger:
    """The port `QuotaLedger` in memory."""

    def __init__(self, server: MemoryQuotaServer, agent: str) -> None:
        self._server = server
        self._agent = agent

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Answer each request by its account."""
        server = self._server
        if server.away:
            raise QuotaAwayError("away")
        now_ms = round(server.now_s() * 1000)
        server.exchanges += 1
        answers = [
            server.accounts.setdefault(request.key, QuotaAccount()).exchange(
                self._agent, request, now_ms
            )
            for request in requests
        ]
        if server.loses_answers:
            raise QuotaAwayError("the answer is lost")
        return answers

    async def close(self) -> None:
        """Do nothing."""
