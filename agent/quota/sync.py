"""The duty that syncs an agent's quotas with the ledger of grants, about twice a second.

Without the ledger, the agent keeps to its share until the ledger answers again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from agent.ports import Clock
from agent.quota.ledger import QuotaAwayError, QuotaLedger, QuotaRequest
from agent.quota.member import QuotaMember
from agent.quota.quotas import Quotas
from agent.quota.share import ShareLedger
from schemas.runtime.outage import Outage

PAUSE_S, SHORTEST_S = 0.5, 0.05
# After this many failures in a row, the share is used; after a single failure, the request is
# repeated.
PATIENCE = 2
PATIENCE_S = 1.0  # before the failures are logged


class QuotaSync:
    """Exchanges requests and answers. `ledger` is None without Redis.

    `look` is called before the asks are read, so that it can update them. `granted` is called when
    further calls may begin.
    """

    def __init__(
        self,
        *,
        quotas: Quotas,
        ledger: QuotaLedger | None,
        share: ShareLedger,
        clock: Clock,
        jitter: Callable[[], float],
        granted: Callable[[], None],
        look: Callable[[float], None] = lambda _now_s: None,
    ) -> None:
        self._quotas = quotas
        self._ledger = ledger
        self._share = share
        self._clock = clock
        self._jitter = jitter
        self._granted = granted
        self._look = look
        self._failures = 0
        self._shares = ledger is None
        # Requests without an answer, by member, and when they were first sent.
        self._open: dict[QuotaMember, tuple[QuotaRequest, float]] = {}
        self._redis = Outage(
            name="Redis",
            clock=clock,
            patience_s=PATIENCE_S,
            hope="this agent keeps to its share of the limits until it does",
        )

    async def run(self) -> None:
        """Exchange until cancelled. A ledger that is slow to answer does not delay the share."""
        async with asyncio.TaskGroup() as tasks:
            if self._ledger is not None:
                tasks.create_task(self._repeat(partial(self.sync, self._ledger)))
            tasks.create_task(self._repeat(self.keep_to_share))

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat the step; the pause is shortened by the time that the step took."""
        while True:
            began_s = self._clock.now_s()
            await step()
            pause_s = PAUSE_S * (0.8 + 0.4 * self._jitter())
            took_s = self._clock.now_s() - began_s
            await self._clock.sleep(max(SHORTEST_S, pause_s - took_s))

    async def sync(self, ledger: QuotaLedger) -> None:
        """Exchange requests and answers with the ledger once."""
        now_s = self._clock.now_s()
        if not self._shares:
            self._look(now_s)
            for member in self._quotas.members(now_s):
                if member not in self._open:
                    self._open[member] = member.draw(now_s), now_s
        # While the share is used, the open requests are sent again; an answer ends the use of the
        # share.
        sent = list(self._open.items())
        if not sent:
            return
        try:
            answers = await ledger.exchange([request for _, (request, _) in sent])
        except QuotaAwayError as error:
            self._failed(error)
            return
        self._redis.answered()
        self._failures, self._shares = 0, False
        for (member, (request, sent_s)), answer in zip(sent, answers, strict=True):
            del self._open[member]
            member.hear(request, answer, sent_s, self._clock.now_s())
        self._tell(member for member, _ in sent)

    async def keep_to_share(self) -> None:
        """Exchange once with the share, if the share is in use."""
        if not self._shares:
            return
        now_s = self._clock.now_s()
        self._look(now_s)
        members = list(self._quotas.members(now_s))
        requests = [member.draw(now_s) for member in members]
        answers = await self._share.exchange(requests)
        for member, request, answer in zip(members, requests, answers, strict=True):
            member.hear(request, answer, now_s, now_s, by_share=True)
        self._tell(members)

    def _tell(self, members: Iterable[QuotaMember]) -> None:
        now_s = self._clock.now_s()
        if any(member.room(now_s) for member in members):
            self._granted()

    def _failed(self, error: QuotaAwayError) -> None:
        self._redis.failed(error)
        self._failures += 1
        if self._failures >= PATIENCE and not self._shares:
            self._shares = True
            self._share.begin(self._quotas.scales)
