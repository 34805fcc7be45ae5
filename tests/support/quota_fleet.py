"""Agents that share a provider's limits, on a clock moved by hand, with endless tasks.

The provider counts by itself: it has no part of the product in it.
"""

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import Charge, GrantStore, LimitKind, WaitingCall
from docllm.agent.quota.limit import NOTHING, Permit
from docllm.agent.quota.quotas import Quotas
from docllm.agent.quota.share import SHARE_EVERY_S, ShareGrantStore
from docllm.agent.quota.sync import EXCHANGE_EVERY_S, QuotaSync
from docllm.schemas.settings.quota import QuotaLimits

STEP_S = 0.04
ROUTE, KEY = "route", "key"
MINUTE_S = 60.0


@dataclass
class MovedClock:
    """A clock that a test moves."""

    at_s: float = 0.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return 86_400.0 + self.at_s

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


@dataclass
class CountingProvider:
    """A provider that notes each call, and refuses those beyond its limits, if it has any.

    Its buckets hold the limit of `window_s`, and are full at first.
    """

    limits: QuotaLimits | None = None
    window_s: float = 60.0
    begun: list[tuple[float, int]] = field(default_factory=list)  # when, and the tokens
    running: int = 0
    most: int = 0
    refusals: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        given = {} if self.limits is None else self.limits.given
        self._levels = {name: given[name] * self.window_s / 60 for name in given}
        self._at_s = 0.0

    def begin(self, now_s: float, tokens: int) -> bool:
        """Take a call, or refuse it."""
        costs = {"rpm": 1, "tpm": tokens}
        given = {} if self.limits is None else self.limits.given
        for name in costs.keys() & given.keys():
            most = given[name] * self.window_s / 60
            gain = (now_s - self._at_s) * given[name] / 60
            self._levels[name] = min(most, self._levels[name] + gain)
        self._at_s = now_s
        short = any(self._levels[name] < costs[name] for name in costs.keys() & given.keys())
        if short or self.running >= given.get("in_flight", 10**9):
            self.refusals.append(now_s)
            return False
        for name in costs.keys() & given.keys():
            self._levels[name] -= costs[name]
        self.begun.append((now_s, tokens))
        self.running += 1
        self.most = max(self.most, self.running)
        return True

    def end(self) -> None:
        """Note the end of a call."""
        self.running -= 1

    def calls(self, from_s: float, to_s: float) -> int:
        """Return how many calls began in an interval."""
        return sum(from_s <= at_s < to_s for at_s, _ in self.begun)

    def tokens(self, from_s: float, to_s: float) -> int:
        """Return the tokens of the calls that began in an interval."""
        return sum(tokens for at_s, tokens in self.begun if from_s <= at_s < to_s)

    def fullest_minute(self, from_s: float = 0.0) -> int:
        """Return how many calls began in the fullest 60 s."""
        times = [at_s for at_s, _ in self.begun if at_s >= from_s]
        most = first = 0
        for number, at_s in enumerate(times):
            while times[first] <= at_s - MINUTE_S:
                first += 1
            most = max(most, number - first + 1)
        return most


@dataclass
class StrictProvider(CountingProvider):
    """A provider that adds up the calls, or tokens, of the last 60 seconds."""

    def begin(self, now_s: float, tokens: int) -> bool:
        """Take a call, or refuse it."""
        given = {} if self.limits is None else self.limits.given
        sums = {"rpm": 1 + self.calls(now_s - MINUTE_S + 1e-6, now_s + 1)}
        sums["tpm"] = tokens + self.tokens(now_s - MINUTE_S + 1e-6, now_s + 1)
        if any(sums[name] > given[name] for name in sums.keys() & given.keys()):
            self.refusals.append(now_s)
            return False
        self.begun.append((now_s, tokens))
        self.running += 1
        return True


class FleetAgent:
    """One agent with slots that are always wanted."""

    def __init__(self, fleet: "Fleet", number: int, store: GrantStore | None) -> None:
        self.fleet = fleet
        self.rng = random.Random(number)  # noqa: S311 - a test's own
        self.frozen = False
        self.idle = False
        self.done = self.begun = 0
        clock = fleet.clock
        self.store = store
        self.quotas = Quotas(lambda _name: (KEY, fleet.limits))
        self.sync = QuotaSync(
            quotas=self.quotas,
            store=store,
            share=ShareGrantStore(
                partitions=lambda: 1 / len(fleet.agents), clock=clock, has_no_redis=store is None
            ),
            clock=clock,
            jitter=self.rng.random,
            granted=lambda: None,
            update_waiting=self._update_waiting,
        )
        self.calls: list[tuple[float, int, Permit, Charge]] = []
        self.starts: list[tuple[float, int, Permit, WaitingCall]] = []
        self.next_s = self.next_share_s = EXCHANGE_EVERY_S * self.rng.random()
        self.queue = [self._task() for _ in range(64)]

    def _task(self) -> WaitingCall:
        low, high = self.fleet.tokens
        return WaitingCall(charge=Charge(tokens_in=self.rng.randint(low, high), tokens_out=0))

    def _asks(self) -> list[WaitingCall]:
        """Return the calls that wait, one for each free slot."""
        free = self.fleet.slots - len(self.calls) - len(self.starts)
        return [] if self.idle else self.queue[:free]

    def _update_waiting(self, now_s: float) -> None:
        self.quotas.set_waiting(ROUTE, self._asks(), now_s)

    async def drive(self, now_s: float) -> None:
        """Let the agent do what is due."""
        while self.calls and self.calls[0][0] <= now_s:
            _, _, permit, charged = heapq.heappop(self.calls)
            self.fleet.provider.end()
            self.quotas.note_ended(permit, charged)
            self.done += 1
        while self.starts and self.starts[0][0] <= now_s:
            _, _, permit, ask = heapq.heappop(self.starts)
            self._call(ask, permit, now_s)
        if now_s >= self.next_s:
            self.next_s = now_s + EXCHANGE_EVERY_S * (0.8 + 0.4 * self.rng.random())
            if self.store is not None:
                await self.sync.sync(self.store)
        if now_s >= self.next_share_s:
            self.next_share_s = now_s + SHARE_EVERY_S * (0.8 + 0.4 * self.rng.random())
            await self.sync.keep_to_share()
        for ask in self._asks():
            begun = self.quotas.permit([(LimitKind.ACCOUNT, ROUTE)], ask.charge, CallSize(), now_s)
            if begun is None:
                return
            self.queue.remove(ask)
            self.queue.append(self._task())
            self.begun += 1
            if begun.at_s <= now_s:
                self._call(ask, begun, now_s)
            else:
                heapq.heappush(self.starts, (begun.at_s, self.begun, begun, ask))

    def _call(self, ask: WaitingCall, permit: Permit, now_s: float) -> None:
        actual = round(ask.charge.tokens_in * self.fleet.used)
        if not self.fleet.provider.begin(now_s, actual):
            self.quotas.note_ended(permit, NOTHING)
            assert permit.account is not None
            permit.account.note_reply(refused=True, retry_after_s=1.0)
            self.queue.insert(0, ask)
            return
        lasts_s = self.fleet.call_s * (0.5 + self.rng.random())
        charged = Charge(tokens_in=actual, tokens_out=0)
        self.begun += 1
        heapq.heappush(self.calls, (now_s + lasts_s, self.begun, permit, charged))


class Fleet:
    """Agents with one provider, and one store for each that `store_of` returns.

    `tokens` is the range of what tasks are estimated to cost, `used` which part they really do.
    """

    def __init__(
        self,
        *,
        agents: int,
        limits: QuotaLimits,
        store_of: Callable[[int], GrantStore | None],
        clock: MovedClock,
        provider: CountingProvider | None = None,
        slots: int = 64,
        call_s: float = 2.0,
        tokens: tuple[int, int] = (100, 100),
        used: float = 1.0,
    ) -> None:
        self.limits, self.clock, self.slots = limits, clock, slots
        self.call_s, self.tokens, self.used = call_s, tokens, used
        self.provider = provider or CountingProvider()
        self._rng = random.Random(0)  # noqa: S311 - a test's own
        self.agents: list[FleetAgent] = []
        for number in range(agents):
            self.agents.append(FleetAgent(self, number, store_of(number)))

    def drive(self, until_s: float) -> None:
        """Let time pass."""
        asyncio.run(self.driven(until_s))

    async def driven(self, until_s: float) -> None:
        """Let time pass, in a loop that runs already."""
        while self.clock.at_s < until_s:
            self.clock.at_s += STEP_S
            order = self.agents.copy()
            self._rng.shuffle(order)
            for agent in order:
                if not agent.frozen:
                    await agent.drive(self.clock.at_s)
