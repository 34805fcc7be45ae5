"""Keeps one account's limits as levels: time fills a level, and a grant lowers it.

Pure. Levels start at zero. A level may be negative: if calls cost more than they were granted, no
grant is made until time has refilled the level. Running calls are not counted here: each agent
reports its own number, and a silent agent counts as having none. Ages are measured by the account's
own clock, which advances at each exchange by at most a second. So a clock jump or a suspended
machine does not make reporting agents look silent.

Tested by tests/contract/test_quota.py.
"""

from dataclasses import dataclass, replace

from agent.quota.ledger import Ask, Charge, DayCount, QuotaAnswer, QuotaRequest, Refund
from schemas.settings.quota import QuotaLimits

# The share of a limit that is granted. The rest is reserved for grants that are used late.
USE = 0.995
# The capacity of a level: how much time's worth of its limit an idle account saves up.
CAPACITY_MS = 800
REST_MS = 500  # beside a whole request, so that a low rate loses nothing between two exchanges
STEP_MS = 1000  # the most that the account's clock moves at once
HUNGRY_MS = 1500  # an agent that asked within this time gets a share of the grants
# After a gap of GAP_MS, the account may not know all running calls. So for LEARN_MS it grants no
# new seats and only collects reports.
GAP_MS, LEARN_MS = 2000, 1000
AWAY_MS = 6000  # an agent that was silent for this long is dropped, with its calls
# If there are more agents than seats, an agent keeps its seat for TURN_MS, or for less so that a
# round of all agents takes about ROUND_MS. Turns are long, because a seat stays unused for a while
# when it passes to another agent.
TURN_MS, ROUND_MS = 20_000, 60_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000

# `scale` is the part of the limits that is used. Refused calls lower it, at most once in CUT_MS;
# without refusals it grows again.
CUT, CUT_MS, CALM_MS, LOWEST = 0.92, 2000, 3000, 0.1
GROWTH, FAST_GROWTH = 0.01, 0.04  # a second
LONGEST_WAIT_S = 5.0

RATES = ("rpm", "tpm", "itpm", "otpm")


@dataclass(slots=True)
class _Agent:
    sequence: int
    granted: int
    seats: int
    held: int  # seats that nobody else may have
    claim: int  # seats that the agent is entitled to, even if others still hold them
    seen_ms: float


def charged(limit: str, cost: Charge | Refund) -> int:
    """Return what a cost means for one limit of a rate."""
    if limit == "rpm":
        return cost.requests if isinstance(cost, Refund) else 1
    return {
        "tpm": cost.tokens_in + cost.tokens_out,
        "itpm": cost.tokens_in,
        "otpm": cost.tokens_out,
    }[limit]


class QuotaAccount:
    """The state of one account. `quota.lua` has the same rules."""

    def __init__(self) -> None:
        self.levels: dict[str, float] = {}
        self.scale = 1.0
        self._at_ms: float | None = None
        self._clock_ms = self._learns_until_ms = 0.0
        self._cut_ms = float("-inf")
        self._pause_ms = 0.0
        self._full = False  # whether all levels were full before the request
        self._day, self._used = -1, 0
        self._base = 0  # of `_used`: calls that this account was told of
        self._agents: dict[str, _Agent] = {}
        self._hungry: dict[str, float] = {}

    def exchange(
        self,
        agent: str,
        request: QuotaRequest,
        now_ms: float,
        part: float = 1.0,
        today: int | None = None,
    ) -> QuotaAnswer:
        """Answer a request. `part` is the part of the limits that this account may give.

        `today` is the day (UTC) where `now_ms` does not count from 1970.
        """
        past_ms = self._pass_time(now_ms)
        known = self._agents.get(agent)
        again = known is not None and known.sequence == request.sequence
        told = replace(request, refund=Refund(), refused=0) if again else request
        self._adjust(told, past_ms)
        self._fill(told, past_ms, part)
        if known is not None and again:
            known.seen_ms = self._clock_ms
            known.held = max(request.running, known.seats)
            return self._answer(request, known)
        self._count_day(request, int(now_ms // DAY_MS) if today is None else today)
        self._note_hunger(agent, request.asks)
        mine = self._seat(agent, request, part)
        mine.granted, binding = self._grant(request, mine, part)
        self._agents[agent] = mine
        return self._answer(request, mine, binding)

    def _pass_time(self, now_ms: float) -> float:
        """Return the time since the last exchange, 0 if the clock was set back."""
        first = self._at_ms is None
        past_ms = 0.0 if self._at_ms is None else max(0.0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._clock_ms += min(past_ms, STEP_MS)
        if first or past_ms > GAP_MS:
            self._learns_until_ms = self._clock_ms + LEARN_MS
        oldest_ms = self._clock_ms - AWAY_MS
        self._agents = {
            name: agent for name, agent in self._agents.items() if agent.seen_ms > oldest_ms
        }
        hungry_ms = self._clock_ms - HUNGRY_MS
        self._hungry = {name: ms for name, ms in self._hungry.items() if ms > hungry_ms}
        return past_ms

    @property
    def _learns(self) -> bool:
        """Return whether the account may have forgotten what the agents know."""
        return self._clock_ms < self._learns_until_ms

    def _adjust(self, request: QuotaRequest, past_ms: float) -> None:
        """Move the scale, and pause after a refusal."""
        if self._clock_ms - self._cut_ms >= CALM_MS:
            fast = request.remaining is not None and request.remaining > 0.5  # noqa: PLR2004 - half
            growth = FAST_GROWTH if fast else GROWTH
            self.scale = min(1.0, self.scale + growth * past_ms / 1000)
        if not request.refused:
            return
        if self._clock_ms - self._cut_ms >= CUT_MS:
            self.scale = max(LOWEST, self.scale * CUT)
            self._cut_ms = self._clock_ms
        wait_ms = 1000 * min(request.retry_after_s, LONGEST_WAIT_S) / 2
        self._pause_ms = max(self._pause_ms, self._clock_ms + wait_ms)

    def _fill(self, request: QuotaRequest, past_ms: float, part: float) -> None:
        """Let the levels fill, give back what was not used, and drop those without a limit."""
        levels, self._full = {}, True
        for name in RATES:
            limit = request.limits.given.get(name)
            if limit is None:
                continue
            rate = limit * part / MINUTE_MS
            capacity, gain = rate * CAPACITY_MS, rate * USE * self.scale * past_ms
            if name == "rpm":
                capacity = max(capacity, 1 + rate * REST_MS)
            level = self.levels.get(name, 0.0)
            # A level above its capacity (late refunds) falls as fast as it would otherwise fill.
            level = max(capacity, level - gain) if level > capacity else min(capacity, level + gain)
            self._full = self._full and level >= capacity
            level += charged(name, request.refund)
            level = min(level, 0.0) if request.refused else level
            minute = rate * MINUTE_MS
            # Bounded to a minute's limit in both directions.
            levels[name] = max(-minute, min(minute, level))
        self.levels = levels

    def _count_day(self, request: QuotaRequest, day: int) -> None:
        if day != self._day:
            self._day, self._used, self._base = day, 0, 0
        self._used = max(0, self._used - request.refund.requests)
        # What agents were told is too high once others have given something back.
        for told in (request.used_today, request.told_today if self._learns else None):
            if told is not None and told.day == day and told.calls > self._used:
                self._used = self._base = told.calls

    def _note_hunger(self, agent: str, asks: tuple[Ask, ...]) -> None:
        self._hungry.pop(agent, None)
        if asks:
            self._hungry[agent] = self._clock_ms

    def _seat(self, agent: str, request: QuotaRequest, part: float) -> _Agent:
        """Lease seats: at least a fair share, and more while others do not claim theirs."""
        running, sequence = request.running, request.sequence
        wants = running + request.in_hand + len(request.asks)
        others = [other for name, other in self._agents.items() if name != agent]
        limit = request.limits.in_flight
        if limit is None:
            return _Agent(sequence, 0, wants, running, running, self._clock_ms)
        limit = max(1, int(limit * part))
        fair = limit // (len(others) + 1)
        free = limit - sum(other.held for other in others)
        unclaimed = limit - sum(other.claim for other in others)
        seats = max(0, min(wants, free, max(fair, unclaimed)))
        known = self._agents.get(agent)
        if not fair and (running or (known is not None and known.held > 0)):
            keeps = known is not None and self._keeps(known, limit, len(others) + 1)
            seats = max(running - 1, int(keeps and wants > 0), 0)
        elif not fair:
            seats = max(0, min(wants, free, 1))
        if self._learns:
            seats = min(seats, running)
        held = max(running, seats)
        return _Agent(sequence, 0, seats, held, max(held, min(wants, fair)), self._clock_ms)

    def _keeps(self, agent: _Agent, limit: int, agents: int) -> bool:
        """Return whether an agent keeps its only seat.

        The turns of all agents end at the same times.
        """
        turn_ms = min(TURN_MS, ROUND_MS * limit // agents)
        return agent.seats > 0 and agent.seen_ms // turn_ms == self._clock_ms // turn_ms

    def _grant(self, request: QuotaRequest, mine: _Agent, part: float) -> tuple[int, str]:
        """Return how many of the first asks are granted, and the limit that stopped the next."""
        limits = request.limits
        first = dict(self.levels)
        sharers = max(1, len(self._hungry))
        # If all rate limits have room, one grant is made in advance for the next call that ends.
        ends = max(request.ends, int(self._full and request.running > 0))
        usable = mine.seats - request.running - request.in_hand + ends
        for number, ask in enumerate(request.asks):
            binding = self._binding(ask, number, first, sharers)
            if not binding and self._day_is_used(limits, part):
                binding = "rpd"
            if limits.in_flight is not None and number >= usable:
                binding = "in_flight"
            if binding or self._pause_ms > self._clock_ms:
                return number, binding
            for name in self.levels:
                self.levels[name] -= charged(name, ask.cost)
            self._used += 1
        return len(request.asks), ""

    def _binding(self, ask: Ask, number: int, first: dict[str, float], sharers: int) -> str:
        """Return the limit that stops this ask, or "".

        Agents with waiting tasks share a level; each may take up to three times its fair part, so
        that little is left unused between exchanges. A task of any size is granted as soon as the
        level is positive; otherwise a large task would wait for all small ones.
        """
        for name, level in self.levels.items():
            enough = level >= 1 if name == "rpm" else level > 0
            taken = first[name] - level + charged(name, ask.cost)
            if not enough or (number and taken > max(1.0, 3 * first[name] / sharers)):
                return name
        return ""

    def _day_is_used(self, limits: QuotaLimits, part: float) -> bool:
        """Return whether the calls of the day are used up, as far as is known.

        With a part of the limits, an agent does not see the others' calls. So it takes its part of
        the calls that were left when it was told last how many there had been.
        """
        if limits.rpd is None:
            return False
        return (
            self._learns or not part or self._base + (self._used - self._base) / part >= limits.rpd
        )

    def _answer(self, request: QuotaRequest, mine: _Agent, binding: str = "") -> QuotaAnswer:
        return QuotaAnswer(
            granted=tuple(number < mine.granted for number in range(len(request.asks))),
            seats=None if request.limits.in_flight is None else mine.seats,
            paused_s=max(0.0, self._pause_ms - self._clock_ms) / 1000,
            scale=self.scale,
            agents=len(self._agents),
            binding=binding,
            today=DayCount(day=self._day, calls=self._used),
        )
