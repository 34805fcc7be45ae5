"""Keeps one account's limits as token buckets: time fills them, each grant takes from them.

Pure. Buckets start empty. A bucket may be negative: if calls cost more than they were granted, no
grant is made until time has refilled the bucket. Running calls are not counted here: each agent
reports its own number, and a silent agent counts as having none. Ages are measured by the account's
own clock, which advances at each exchange by at most a second. So a clock jump or a suspended
machine does not make reporting agents look silent.
"""

from dataclasses import dataclass, replace

from docllm.agent.quota.grants import (
    NO_REFUND,
    RATES,
    DayCount,
    QuotaAnswer,
    QuotaRequest,
    WaitingCall,
    charged,
)
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.lua_minute import RecentMinute
from tests.support.lua_spacing import CallSpacing, spaced_per_minute

MINUTE_MS = 60_000

# The share of a limit that is granted. The rest is kept for grants that are used late.
USE = 0.995
# The capacity of a bucket: how much time's worth of its limit an idle account saves up.
CAPACITY_MS = 800
REST_MS = 500  # beside a whole request, so that a low rate loses nothing between two exchanges
STEP_MS = 1000  # the most that the account's clock moves at once
WAITING_MS = 1500  # an agent that asked within this time gets a share of the grants
# After a gap of GAP_MS, the account may not know all running calls. So for LEARN_MS it grants no
# new seats and only collects reports.
GAP_MS, LEARN_MS = 2000, 1000
AWAY_MS = 6000  # an agent that was silent for this long is dropped, with its calls
# If there are more agents than seats, an agent keeps its seat for SEAT_MS, or for less so that a
# round of all agents takes about ROUND_MS. That is long, because a seat stays unused for a while
# when it passes to another agent.
SEAT_MS, ROUND_MS = 20_000, 60_000
DAY_MS = 86_400_000

# Refused calls lower the accepted share, at most once in CUT_EVERY_MS. It grows again without them.
CUT, MIN_SHARE = 0.92, 0.1
CUT_EVERY_MS, CALM_MS = 2000, 3000
GROWTH, FAST_GROWTH = 0.01, 0.04  # of the accepted share, in a second
MAX_WAIT_S = 5.0


@dataclass(slots=True)
class _AgentSeats:
    sequence: int
    granted: int
    seats: int
    seats_held: int  # seats that nobody else may have
    seats_entitled: int  # seats that the agent is entitled to, even if others hold them
    seen_ms: float


class AccountBuckets:
    """The state of one account. `quota.lua` has the same rules."""

    def __init__(self) -> None:
        self.buckets: dict[str, float] = {}
        self._unfilled_ms = dict.fromkeys(RATES, 0.0)  # by bucket
        self.accepted_share = 1.0
        self._at_ms: float | None = None
        self._began_ms = 0
        self._clock_ms = self._learns_until_ms = 0.0
        self._cut_at_ms = float("-inf")
        self._paused_until_ms = 0.0
        self._is_full = False  # whether all buckets were full, before the request
        self._minute, self._spacing = RecentMinute(), CallSpacing()
        self._day, self._used = -1, 0
        self._agents: dict[str, _AgentSeats] = {}
        self._waiting_at_ms: dict[str, float] = {}

    def exchange(
        self,
        agent: str,
        request: QuotaRequest,
        now_ms: float,
    ) -> QuotaAnswer:
        """Answer a request."""
        past_ms = self._pass_time(now_ms)
        before = self._agents.get(agent)
        is_repeated = before is not None and before.sequence == request.sequence
        # A repeated request was counted before.
        counted = replace(request, refund=NO_REFUND, refused=0) if is_repeated else request
        self._minute.begin(now_ms, self._clock_ms, request.limits)
        self._adjust(counted, past_ms)
        self._refill(counted, past_ms)
        self._minute.give_back(counted.refund)
        rate = spaced_per_minute(request.limits) * USE * self.accepted_share
        self._spacing.begin(now_ms, rate, refused=counted.refused > 0)
        if before is not None and is_repeated:
            before.seen_ms = self._clock_ms
            before.seats_held = max(request.running, before.seats)
            return self._answer(request, before)
        self._count_day(request, int(now_ms // DAY_MS))
        self._note_waiting(agent, request.waiting)
        seats = self._lease_seats(agent, request)
        seats.granted, binding = self._grant(agent, request, seats)
        self._spacing.add(seats.granted)
        self._agents[agent] = seats
        return self._answer(request, seats, binding)

    def _pass_time(self, now_ms: float) -> float:
        """Return the time since the last exchange, 0 if the clock was set back."""
        first = self._at_ms is None
        self._began_ms = int(now_ms) if first else self._began_ms
        past_ms = 0.0 if self._at_ms is None else max(0.0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._clock_ms += min(past_ms, STEP_MS)
        if first or past_ms > GAP_MS:
            self._learns_until_ms = self._clock_ms + LEARN_MS
        oldest_ms = self._clock_ms - AWAY_MS
        self._agents = {
            name: agent for name, agent in self._agents.items() if agent.seen_ms > oldest_ms
        }
        oldest_ms = self._clock_ms - WAITING_MS
        self._waiting_at_ms = {
            name: ms for name, ms in self._waiting_at_ms.items() if ms > oldest_ms
        }
        return past_ms

    @property
    def _learns(self) -> bool:
        """Whether the account may have forgotten what the agents know."""
        return self._clock_ms < self._learns_until_ms

    def _adjust(self, request: QuotaRequest, past_ms: float) -> None:
        """Move the accepted share, and pause after a refusal."""
        if self._clock_ms - self._cut_at_ms >= CALM_MS:
            fast = request.remaining is not None and request.remaining > 0.5
            growth = FAST_GROWTH if fast else GROWTH
            self.accepted_share = min(1.0, self.accepted_share + growth * past_ms / 1000)
        if not request.refused:
            return
        if self._clock_ms - self._cut_at_ms >= CUT_EVERY_MS:
            self.accepted_share = max(MIN_SHARE, self.accepted_share * CUT)
            self._cut_at_ms = self._clock_ms
        self._minute.note_refused()
        wait_ms = 1000 * min(request.retry_after_s, MAX_WAIT_S) / 2
        self._paused_until_ms = max(self._paused_until_ms, self._clock_ms + wait_ms)

    def _refill(self, request: QuotaRequest, past_ms: float) -> None:
        """Fill the buckets, and give back what was not used."""
        self._is_full = True
        for name in RATES:
            limit = request.limits.given.get(name)
            unfilled_ms = self._unfilled_ms[name] + past_ms
            self._unfilled_ms[name] = unfilled_ms if limit is None else 0.0
            if limit is None:  # other agents may have one
                continue
            rate = limit / MINUTE_MS
            capacity, gain = rate * CAPACITY_MS, rate * USE * self.accepted_share * unfilled_ms
            if name == "rpm":
                capacity = max(capacity, 1 + rate * REST_MS)
            capacity = max(capacity, self._minute.kept(name))
            bucket = self.buckets.get(name, 0.0)
            # A bucket above its capacity (late refunds) falls as fast as it would otherwise fill.
            bucket = (
                max(capacity, bucket - gain) if bucket > capacity else min(capacity, bucket + gain)
            )
            self._is_full = self._is_full and bucket >= capacity
            bucket += charged(name, request.refund)
            bucket = min(bucket, 0.0) if request.refused else bucket
            # Bounded to a minute's limit both ways.
            self.buckets[name] = max(-limit, min(limit, bucket))

    def _count_day(self, request: QuotaRequest, day: int) -> None:
        if day != self._day:
            self._day, self._used = day, 0
        self._used = max(0, self._used - request.refund.requests)
        # When all agents return at once, each tells what its share granted. An agent that returns
        # later tells what the agents' own records leave out, because the others told of the rest.
        if self._learns:
            # What agents were told is too high once others have given something back.
            self._note_told(request.told_today)
            self._used += request.uncounted
        else:
            # Running calls are granted calls, which only the agents' own records leave out.
            self._used += request.unrecorded
            self._note_told(request.used_today, max(request.running, request.unrecorded))

    def _note_told(self, told: DayCount | None, more: int = 0) -> None:
        if told is not None and told.day == self._day and told.calls + more > self._used:
            self._used = told.calls + more

    def _note_waiting(self, agent: str, waiting: tuple[WaitingCall, ...]) -> None:
        self._waiting_at_ms.pop(agent, None)
        if waiting:
            self._waiting_at_ms[agent] = self._clock_ms

    def _lease_seats(self, agent: str, request: QuotaRequest) -> _AgentSeats:
        """Lease seats: at least a fair share, and more while others want less than theirs."""
        running, sequence = request.running, request.sequence
        wanted = running + request.in_hand + len(request.waiting)
        others = [other for name, other in self._agents.items() if name != agent]
        limit = request.limits.in_flight
        if limit is None:
            return _AgentSeats(sequence, 0, wanted, running, running, self._clock_ms)
        agents = len(others) + 1
        fair = limit // agents
        free = limit - sum(other.seats_held for other in others)
        unentitled = limit - sum(other.seats_entitled for other in others)
        seats = max(0, min(wanted, free, max(fair, unentitled)))
        before = self._agents.get(agent)
        if not fair and (running or (before is not None and before.seats_held > 0)):
            # There may be no free seat for it after the limit was lowered.
            keeps = before is not None and free > 0 and self._keeps_seat(before, limit, agents)
            seats = max(running - 1, int(keeps and wanted > 0), 0)
        elif not fair:
            seats = max(0, min(wanted, free, 1))
        if self._learns:
            seats = min(seats, running)
        held = max(running, seats)
        return _AgentSeats(sequence, 0, seats, held, max(held, min(wanted, fair)), self._clock_ms)

    def _keeps_seat(self, agent: _AgentSeats, limit: int, agents: int) -> bool:
        """Return whether an agent keeps its only seat.

        The seats of all agents change hands at the same times.
        """
        seat_ms = min(SEAT_MS, ROUND_MS * limit // agents)
        return agent.seats > 0 and agent.seen_ms // seat_ms == self._clock_ms // seat_ms

    def _grant(self, agent: str, request: QuotaRequest, seats: _AgentSeats) -> tuple[int, str]:
        """Return how many of the waiting calls are granted, and the limit that stopped the next."""
        limits = request.limits
        buckets = {name: self.buckets[name] for name in RATES if name in limits.given}
        waiting_agents = max(1, len(self._waiting_at_ms))
        # If all rate limits have room, one grant is made in advance for the next call that ends.
        ends = max(request.ends, int(self._is_full and request.running > 0))
        usable = seats.seats - request.running - request.in_hand + ends
        for number, call in enumerate(request.waiting):
            binding = self._binding(call, number, buckets, waiting_agents)
            if not binding and self._day_is_used(limits):
                binding = "rpd"
            if limits.in_flight is not None and number >= usable:
                binding = "in_flight"
            if not binding and (binding := self._minute.lacks(agent, call.charge)):
                self._minute.keep_room(agent, call.charge)
                return number, binding
            if binding or self._paused_until_ms > self._clock_ms:
                break
            for name in buckets:
                self.buckets[name] -= charged(name, call.charge)
            self._minute.add(call.charge)
            self._used += 1
        else:
            number, binding = len(request.waiting), ""
        self._minute.release_room(agent)
        return number, binding

    def _binding(
        self, call: WaitingCall, number: int, before: dict[str, float], waiting_agents: int
    ) -> str:
        """Return the limit that stops this call, or "".

        Agents with waiting tasks share a bucket; each may take up to three times its fair share, so
        that little is left unused between exchanges. A task of any size is granted as soon as the
        bucket is positive; otherwise a large task would wait for all small ones.
        """
        for name, first in before.items():
            bucket = self.buckets[name]
            is_enough = bucket >= 1 if name == "rpm" else bucket > 0
            used = first - bucket + charged(name, call.charge)
            if not is_enough or (number and used > max(1.0, 3 * first / waiting_agents)):
                return name
        return ""

    def _day_is_used(self, limits: QuotaLimits) -> bool:
        """Return whether the calls of the day are used up, as far as is known."""
        return limits.rpd is not None and (self._learns or self._used >= limits.rpd)

    def _answer(self, request: QuotaRequest, seats: _AgentSeats, binding: str = "") -> QuotaAnswer:
        return QuotaAnswer(
            granted=tuple(number < seats.granted for number in range(len(request.waiting))),
            seats=None if request.limits.in_flight is None else seats.seats,
            paused_s=max(0.0, self._paused_until_ms - self._clock_ms) / 1000,
            accepted_share=self.accepted_share,
            agents=len(self._agents),
            binding=binding,
            today=DayCount(day=self._day, calls=self._used),
            began_ms=self._began_ms,
            starts_in_s=self._spacing.first_in_ms(seats.granted) / 1000,
            starts_every_s=self._spacing.every_ms / 1000,
        )
