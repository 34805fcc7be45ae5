"""The duty that exchanges requests and answers with the grant store, about twice a second.

Without the grant store, the agent keeps to its share until the store answers again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from agent.ports import Clock
from agent.quota.agent_quota import AgentQuota
from agent.quota.grants import GrantStore, QuotaAwayError, QuotaRequest
from agent.quota.quotas import Quotas
from agent.quota.share import ShareGrantStore
from schemas.runtime.outage import Outage

EXCHANGE_EVERY_S, MIN_PAUSE_S = 0.5, 0.05
# After this many failures in a row, the share is used; after a single failure, the request is
# repeated.
PATIENCE = 2
PATIENCE_S = 1.0  # shorter failures are not logged


class QuotaSync:
    """Exchanges requests and answers. `store` is None without Redis.

    `update_waiting` is called before the waiting calls are read, so that they are up to date.
    `granted` is called when calls may begin that could not before.
    """

    def __init__(
        self,
        *,
        quotas: Quotas,
        store: GrantStore | None,
        share: ShareGrantStore,
        clock: Clock,
        jitter: Callable[[], float],
        granted: Callable[[], None],
        update_waiting: Callable[[float], None] = lambda _now_s: None,
    ) -> None:
        self._quotas = quotas
        self._store = store
        self._share = share
        self._clock = clock
        self._jitter = jitter
        self._granted = granted
        self._update_waiting = update_waiting
        self._failures = 0
        self._uses_share = store is None
        # Requests without an answer, by quota, and when they were first sent.
        self._open: dict[AgentQuota, tuple[QuotaRequest, float]] = {}
        self._redis = Outage(
            name="Redis",
            clock=clock,
            patience_s=PATIENCE_S,
            hope="this agent keeps to its share of the limits until Redis answers",
        )

    async def run(self) -> None:
        """Exchange until cancelled. A store that is slow to answer does not delay the share."""
        async with asyncio.TaskGroup() as tasks:
            if self._store is not None:
                tasks.create_task(self._repeat(partial(self.sync, self._store)))
            tasks.create_task(self._repeat(self.keep_to_share))

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat the step; the pause is shortened by the time that the step took."""
        while True:
            began_s = self._clock.now_s()
            await step()
            pause_s = EXCHANGE_EVERY_S * (0.8 + 0.4 * self._jitter())
            took_s = self._clock.now_s() - began_s
            await self._clock.sleep(max(MIN_PAUSE_S, pause_s - took_s))

    async def sync(self, store: GrantStore) -> None:
        """Exchange requests and answers with the grant store once."""
        now_s = self._clock.now_s()
        if not self._uses_share:
            self._update_waiting(now_s)
            for quota in self._quotas.with_news(now_s):
                if quota not in self._open:
                    self._open[quota] = quota.next_request(now_s), now_s
        # While the share is used, the open requests are sent again; an answer ends the use of the
        # share.
        sent = list(self._open.items())
        if not sent:
            return
        try:
            answers = await store.exchange([request for _, (request, _) in sent])
        except QuotaAwayError as error:
            self._failed(error)
            return
        self._redis.answered()
        returns = self._uses_share
        self._failures, self._uses_share = 0, False
        for (quota, (request, sent_at_s)), answer in zip(sent, answers, strict=True):
            del self._open[quota]
            quota.apply_answer(request, answer, sent_at_s, self._clock.now_s())
        self._wake_if_room(quota for quota, _ in sent)
        if returns:  # the answered requests are old; the next ones tell what the share granted
            await self.sync(store)

    async def keep_to_share(self) -> None:
        """Exchange once with the share, if the share is in use."""
        if not self._uses_share:
            return
        now_s = self._clock.now_s()
        self._update_waiting(now_s)
        quotas = list(self._quotas.with_news(now_s))
        requests = [quota.next_request(now_s) for quota in quotas]
        answers = await self._share.exchange(requests)
        for quota, request, answer in zip(quotas, requests, answers, strict=True):
            quota.apply_answer(request, answer, now_s, now_s, by_share=True)
        self._wake_if_room(quotas)

    def _wake_if_room(self, quotas: Iterable[AgentQuota]) -> None:
        now_s = self._clock.now_s()
        if any(quota.room(now_s) for quota in quotas):
            self._granted()

    def _failed(self, error: QuotaAwayError) -> None:
        self._redis.failed(error)
        self._failures += 1
        if self._failures >= PATIENCE and not self._uses_share:
            self._uses_share = True
            self._share.begin(self._quotas.accepted_shares)
