"""The duty that exchanges requests and answers with the grant store, about twice a second.

Without the grant store, the agent keeps to its share until the store answers again. It also does
so while the store loses its memory again and again, because each time all token buckets begin
empty. Then it sends requests that ask for nothing, until the store remembers them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from docllm.agent.ports import Clock
from docllm.agent.quota.agent_quota import AgentQuota
from docllm.agent.quota.grants import GrantStore, QuotaAnswer, QuotaRequest, RedisAwayError
from docllm.agent.quota.quotas import Quotas
from docllm.agent.quota.share import SHARE_EVERY_S, ShareGrantStore
from docllm.schemas.codes import Code
from docllm.schemas.runtime.outage import Outage, Words

EXCHANGE_EVERY_S, MIN_PAUSE_S = 0.5, 0.05
# After this many failures in a row, the share is used; after a single failure, the request is
# repeated.
PATIENCE = 2
PATIENCE_S = 1.0  # shorter failures are not logged
LATE_S = 1.0  # an answer that took so long is not used, since its grants end too soon
LATE = (
    f"its answers take longer than {LATE_S:.0f} s; "
    "Redis, the network or the processor of this agent is too slow"
)
FORGETS = Words(
    "forgets the limits",
    "has been forgetting the limits",
    "remembers the limits",
    Code.SERVER_AWAY,
)
WHAT_TO_DO = (
    "it evicts keys or is emptied; set its maxmemory-policy to noeviction, "
    "or redis.url to a Redis of docllm's own"
)
HOPE = "this agent keeps to its share of the limits until Redis "


@dataclass(slots=True, kw_only=True, eq=False)
class QuotaSync:
    """Exchanges requests and answers. `store` is None without Redis.

    `update_waiting` is called before the waiting calls are read, so that they are up to date.
    `granted` is called when calls may begin that could not before.
    """

    quotas: Quotas
    store: GrantStore | None
    share: ShareGrantStore
    clock: Clock
    jitter: Callable[[], float]
    granted: Callable[[], None]
    update_waiting: Callable[[float], None] = lambda _now_s: None
    _failures: int = field(default=0, init=False)
    _uses_share: bool = field(init=False)
    # Requests without an answer, by quota, and when they were first sent.
    _open: dict[AgentQuota, tuple[QuotaRequest, float]] = field(default_factory=dict, init=False)
    _redis: Outage = field(init=False)
    _memory: Outage = field(init=False)

    def __post_init__(self) -> None:
        self._uses_share = self.store is None
        self._redis = Outage(
            name="Redis",
            clock=self.clock,
            patience_s=PATIENCE_S,
            hope=f"{HOPE}answers",
        )
        self._memory = Outage(
            name="Redis", clock=self.clock, words=FORGETS, patience_s=0.0, hope=f"{HOPE}remembers"
        )

    async def run(self) -> None:
        """Exchange until cancelled. A store that is slow to answer does not delay the share."""
        async with asyncio.TaskGroup() as tasks:
            if self.store is not None:
                tasks.create_task(self._repeat(partial(self.sync, self.store), EXCHANGE_EVERY_S))
            tasks.create_task(self._repeat(self.keep_to_share, SHARE_EVERY_S))

    async def _repeat(self, step: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Repeat the step; the pause is shortened by the time that the step took."""
        while True:
            began_s = self.clock.now_s()
            await step()
            pause_s = every_s * (0.8 + 0.4 * self.jitter())
            took_s = self.clock.now_s() - began_s
            await self.clock.sleep(max(MIN_PAUSE_S, pause_s - took_s))

    async def sync(self, store: GrantStore) -> None:
        """Exchange requests and answers with the grant store once."""
        now_s = self.clock.now_s()
        if not self._uses_share:
            self.update_waiting(now_s)
            for quota in self.quotas.with_news(now_s):
                if quota not in self._open:
                    self._open[quota] = quota.next_request(now_s), now_s
        # While the share is used, the open requests are sent again; an answer ends the use of the
        # share.
        sent = list(self._open.items()) or self._probes(now_s)
        if not sent:
            return
        try:
            answers = await store.exchange([request for _, (request, _) in sent])
        except RedisAwayError as error:
            self._failed(error)
            return
        if self.clock.now_s() - now_s > LATE_S:
            self._failed(RedisAwayError(LATE))
            return
        self._redis.answered()
        self._open.clear()
        self._failures = 0
        answered = list(zip(sent, answers, strict=True))
        if self._is_forgetful((quota, answer) for (quota, _), answer in answered):
            self._use_share(WHAT_TO_DO)
            return
        returns = self._uses_share
        self._uses_share, self.quotas.trouble = False, ""
        for (quota, (request, sent_at_s)), answer in answered:
            quota.apply_answer(request, answer, sent_at_s, self.clock.now_s())
        self._wake_if_room(quota for quota, _ in sent)
        if returns:  # the answered requests are old; the next ones tell what the share granted
            await self.sync(store)

    async def keep_to_share(self) -> None:
        """Exchange once with the share, if the share is in use."""
        if not self._uses_share:
            return
        now_s = self.clock.now_s()
        self.update_waiting(now_s)
        quotas = list(self.quotas.with_news(now_s))
        requests = [quota.next_request(now_s) for quota in quotas]
        answers = await self.share.exchange(requests)
        for quota, request, answer in zip(quotas, requests, answers, strict=True):
            quota.apply_answer(request, answer, now_s, now_s, by_share=True)
        self._wake_if_room(quotas)

    def _wake_if_room(self, quotas: Iterable[AgentQuota]) -> None:
        now_s = self.clock.now_s()
        if any(quota.room(now_s) for quota in quotas):
            self.granted()

    def _failed(self, error: RedisAwayError) -> None:
        self._redis.failed(error)
        self._failures += 1
        if self._failures >= PATIENCE:
            self._use_share(str(error))

    def _use_share(self, trouble: str) -> None:
        self.quotas.trouble = trouble
        if not self._uses_share:
            self._uses_share = True
            self.share.begin(self.quotas.accepted_shares)

    def _probes(self, now_s: float) -> list[tuple[AgentQuota, tuple[QuotaRequest, float]]]:
        """Return requests for a store that forgets; none at other times."""
        quotas = self.quotas.with_news(now_s) if self._uses_share else ()
        return [(quota, (quota.probe(), now_s)) for quota in quotas]

    def _is_forgetful(self, answers: Iterable[tuple[AgentQuota, QuotaAnswer]]) -> bool:
        """Return whether the store loses its memory so often that it is of no use."""
        now_s = self.clock.now_s()
        for quota, answer in answers:
            quota.note_memory(answer, now_s)
        forgets = self.quotas.forgets(now_s)
        if forgets:
            self._memory.failed(WHAT_TO_DO)
        else:
            self._memory.answered()
        return forgets
