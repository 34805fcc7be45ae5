"""Gives an agent a share of an account's limits without Redis: its part of all partitions.

The shares of a group's agents add up to 1 without communication. Each rate has a bucket that begins
empty and may be negative: a call of any size begins once it is positive, and leaves a debt.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from docllm.agent.ports import Clock
from docllm.agent.quota.grants import (
    RATES,
    Charge,
    DayCount,
    QuotaAnswer,
    QuotaRequest,
    charged,
)

# How often an agent asks its share: more often than Redis, so that it needs only small bursts.
SHARE_EVERY_S = 0.1
# Part of its share that an agent uses; the rest is a reserve, because partitions move and other
# groups may use the account.
CAUTION = 0.8
# What fills a bucket in a minute and what it holds are together no more than the limit.
PACE, BURST = 0.995, 0.005
REST_S = 1.2 * SHARE_EVERY_S  # beside a whole request, a bucket holds what comes between two asks
# Refused calls lower the accepted share, at most once in CUT_EVERY_S. It grows again without them.
CUT, MIN_SHARE, CUT_EVERY_S, CALM_S, GROWTH = 0.92, 0.1, 2.0, 3.0, 0.01
MAX_WAIT_S = 5.0
# For so long after a refusal, calls begin one after another, each at most LEAD_S after its grant.
STRICT_S, LEAD_S = 3600.0, 1.5 * SHARE_EVERY_S
# The last minute, by half seconds, must have room for each small call. If it was full at a refusal,
# the provider adds up the last 60 s: then it must have room for a large call, too. Grants may be
# used late, and given back late, so LATE more half seconds count then.
SLOT_S, SLOTS, LATE = 0.5, 120, 4
SMALL, TOO_FULL = 0.02, 1.005  # of a limit
DAY_S = 86_400


class _LocalAccount:
    """What one agent may use of one account."""

    def __init__(self, accepted_share: float = 1.0) -> None:
        self.accepted_share = accepted_share
        self._at_s: float | None = None
        self._levels: dict[str, float] = {}  # of the buckets
        self._minute: dict[int, dict[str, int]] = {}  # what was granted, by half seconds
        self._cut_at_s = self._paused_until_s = self._spaced_until_s = self._strict_until_s = -inf
        self._told: DayCount | None = None
        self._granted_today = 0  # since `_told`

    def exchange(self, request: QuotaRequest, share: float, now_s: float, day: int) -> QuotaAnswer:
        """Answer a request by a share of its limits; `day` is in days since 1970, UTC."""
        past_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        limits = {name: limit * share for name, limit in request.limits.given.items()}
        rates = {name: limits[name] for name in RATES if name in limits}
        self._adjust(request, rates, past_s, now_s)
        pace = PACE * self.accepted_share / 60
        calls_a_second = pace * rates.get("rpm", 0.0)
        is_spaced = (
            calls_a_second > 0 and "in_flight" not in limits and now_s < self._spaced_until_s
        )
        for name, limit in rates.items():
            most = BURST * limit
            if name == "rpm":
                most = 1.0 if is_spaced else max(most, 1 + REST_S * calls_a_second)
            level = min(most, self._levels.get(name, 0.0) + pace * limit * past_s)
            level = max(-request.limits.given[name], level + charged(name, request.refund))
            self._levels[name] = min(0.0, level) if request.refused else level
        late = LATE if now_s < self._strict_until_s else 0
        slot = int(now_s // SLOT_S)
        self._minute = {
            at: costs for at, costs in self._minute.items() if at >= slot - SLOTS - late
        }
        self._count(slot - late, request.refund, -1)
        self._note_day(request, day)
        starts_in_s = max(0.0, 1 - self._levels["rpm"]) / calls_a_second if is_spaced else 0.0
        ahead = LEAD_S * calls_a_second if is_spaced else 0.0
        seats = max(1, int(limits["in_flight"])) if "in_flight" in limits else None
        granted, binding = 0, ""
        for call in request.waiting:
            binding = self._scarce(call.charge, rates, ahead, is_strict=late > 0)
            if "rpd" in limits and not self._day_has_room(limits["rpd"], share):
                binding = "rpd"
            if seats is not None and granted > seats - request.running - request.in_hand:
                binding = "in_flight"  # one call more than seats is granted, for one that ends
            if binding or now_s < self._paused_until_s:
                break
            self._count(slot, call.charge, 1)
            for name in rates:
                self._levels[name] -= charged(name, call.charge)
            self._granted_today += 1
            granted += 1
        return QuotaAnswer(
            granted=tuple(number < granted for number in range(len(request.waiting))),
            seats=seats,
            paused_s=max(0.0, self._paused_until_s - now_s),
            accepted_share=self.accepted_share,
            agents=1,
            binding=binding,
            starts_in_s=starts_in_s,
            starts_every_s=1 / calls_a_second if is_spaced else 0.0,
        )

    def _adjust(
        self, request: QuotaRequest, rates: Mapping[str, float], past_s: float, now_s: float
    ) -> None:
        """Move the accepted share, and pause after a refusal."""
        if now_s - self._cut_at_s >= CALM_S:
            self.accepted_share = min(1.0, self.accepted_share + GROWTH * past_s)
        if not request.refused:
            return
        if now_s - self._cut_at_s >= CUT_EVERY_S:
            self.accepted_share = max(MIN_SHARE, self.accepted_share * CUT)
            self._cut_at_s = now_s
        wait_s = min(request.retry_after_s, MAX_WAIT_S) / 2
        self._paused_until_s = max(self._paused_until_s, now_s + wait_s)
        self._spaced_until_s = now_s + STRICT_S
        if any(self._total(name) > TOO_FULL * limit for name, limit in rates.items()):
            self._strict_until_s = now_s + STRICT_S

    def _scarce(
        self, charge: Charge, rates: Mapping[str, float], ahead: float, *, is_strict: bool
    ) -> str:
        """Return the rate that has no room for a call, or ""; `ahead` requests are granted early.

        A call that is larger than a limit begins once the minute is empty.
        """
        for name, limit in rates.items():
            level, size, total = self._levels[name], charged(name, charge), self._total(name)
            if not (level + ahead >= 1 if name == "rpm" else level > 0):
                return name
            needed = size if is_strict else min(size, max(1.0, SMALL * limit))
            if total > 0 and total + needed > limit:
                return name
        return ""

    # ---- the last minute, and the day

    def _count(self, slot: int, cost: Charge, sign: int) -> None:
        costs = self._minute.setdefault(slot, dict.fromkeys(RATES, 0))
        for name in RATES:
            costs[name] += sign * charged(name, cost)

    def _total(self, name: str) -> int:
        return sum(costs[name] for costs in self._minute.values())

    def _note_day(self, request: QuotaRequest, day: int) -> None:
        """Note how many calls of all agents are known for the day, and which own ones are not."""
        self._granted_today = max(0, self._granted_today - request.refund.requests)
        for told in (request.told_today, request.used_today):
            if told is None:
                continue
            before, known = self._told, told if told.day == day else DayCount(day=day, calls=0)
            if before is None or known.day > before.day or known.calls > before.calls:
                self._told = known
                self._granted_today = max(request.running, request.unrecorded)

    def _day_has_room(self, limit: float, share: float) -> bool:
        """Return whether the agent's share of what is left of the day has room for a call.

        It has none before it is known how many calls the day has seen.
        """
        told = self._told
        return told is not None and self._granted_today < limit - share * told.calls


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
        self._accounts: dict[str, _LocalAccount] = {}

    def begin(self, accepted_shares: Mapping[str, float]) -> None:
        """Begin anew, with empty buckets and the accepted shares that were known last."""
        self._accounts = {key: _LocalAccount(share) for key, share in accepted_shares.items()}

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Answer each request by the agent's share."""
        of_partitions = max(0.0, min(1.0, self._partitions()))
        share = of_partitions * (self._caution if of_partitions >= 1.0 else CAUTION)
        now_s, day = self._clock.now_s(), int(self._clock.utc_s() // DAY_S)
        return [
            self._accounts.setdefault(request.key, _LocalAccount()).exchange(
                request, share, now_s, day
            )
            for request in requests
        ]

    async def close(self) -> None:
        """Do nothing."""
