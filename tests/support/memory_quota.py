"""A grant store for tests: the accounts in memory, which can be away and forget.

The test moves its clock. One suite runs on this store and on Redis, so what is proved with this
store holds for Redis.
"""

from collections.abc import Callable, Sequence

from docllm.agent.quota.grants import QuotaAnswer, QuotaRequest, RedisAwayError
from tests.support.lua_account import AccountBuckets


class MemoryQuotaServer:
    """Stands in for Redis: it can be away, lose answers, and lose its memory, even each time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.away = False
        self.loses_answers = False
        self.forgets = False
        self.accounts: dict[str, AccountBuckets] = {}
        self.exchanges = 0

    def flush(self) -> None:
        """Lose everything."""
        self.accounts.clear()

    def store(self, agent: str) -> "MemoryGrantStore":
        """Return the store as one agent reaches it."""
        return MemoryGrantStore(self, agent)


class MemoryGrantStore:
    """The port `GrantStore` in memory."""

    def __init__(self, server: MemoryQuotaServer, agent: str) -> None:
        self._server = server
        self._agent = agent

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Answer each request by its account."""
        server = self._server
        if server.away:
            raise RedisAwayError("away")
        now_ms = round(server.now_s() * 1000)
        server.exchanges += 1
        if server.forgets:
            server.flush()
        answers = [
            server.accounts.setdefault(request.key, AccountBuckets()).exchange(
                self._agent, request, now_ms
            )
            for request in requests
        ]
        if server.loses_answers:
            raise RedisAwayError("the answer is lost")
        return answers

    async def close(self) -> None:
        """Do nothing."""
