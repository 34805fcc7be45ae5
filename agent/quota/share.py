"""Gives an agent a share of an account's limits without Redis: its part of all partitions.

The shares of a group's agents add up to 1 without communication. The rules are those of
`AccountBuckets`, with smaller limits.
"""

from collections.abc import Callable, Mapping, Sequence

from docllm.agent.ports import Clock
from docllm.agent.quota.account import DAY_MS, AccountBuckets
from docllm.agent.quota.grants import QuotaAnswer, QuotaRequest

# Part of its share that an agent uses; the rest is a reserve, because partitions move and other
# groups may use the account.
CAUTION = 0.8


class ShareGrantStore:
    """The port `GrantStore` inside one agent.

    `partitions` returns the part of all partitions that is the agent's own, from 0 to 1.
    """

    def __init__(
        self, *, partitions: Callable[[], float], clock: Clock, has_no_redis: bool = False
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        # Without Redis in the settings, an agent with all partitions uses the whole limits.
        self._caution = 1.0 if has_no_redis else CAUTION
        self._accounts: dict[str, AccountBuckets] = {}

    def begin(self, accepted_shares: Mapping[str, float]) -> None:
        """Begin anew, with empty buckets and the accepted shares that were known last."""
        self._accounts = {}
        for key, accepted_share in accepted_shares.items():
            account = self._accounts[key] = AccountBuckets()
            account.accepted_share = accepted_share

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Answer each request by the agent's share."""
        of_partitions = max(0.0, min(1.0, self._partitions()))
        share = of_partitions * (self._caution if of_partitions >= 1.0 else CAUTION)
        now_ms, today = self._clock.now_s() * 1000, int(self._clock.utc_s() * 1000 // DAY_MS)
        return [
            self._accounts.setdefault(request.key, AccountBuckets()).exchange(
                "self", request, now_ms, share, today
            )
            for request in requests
        ]

    async def close(self) -> None:
        """Do nothing."""
