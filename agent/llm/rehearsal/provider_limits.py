"""The rehearsal LLM's limits: it refuses calls above them, as a provider does. Pure.

Each limit a minute is a bucket that fills evenly. It holds what the limit allows in `window_s`, so
that calls may come in bursts of that length. A refused call costs nothing.
"""

from dataclasses import dataclass

from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.quota import ChargeRule, QuotaLimits

_MINUTE_S = 60.0
_MANY_CALLS_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedCall:
    """The tokens of a call: of its prompt, of its longest answer, and of its answer."""

    tokens_in: int
    most_out: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A call is refused by this limit; it has room again after `retry_after_s`."""

    limit: str
    retry_after_s: float


class _Bucket:
    """One limit a minute. Its level may fall below 0."""

    def __init__(self, *, per_minute: int, window_s: float, now_s: float) -> None:
        self.per_minute = per_minute
        self.capacity = max(1.0, per_minute * window_s / _MINUTE_S)
        self.level = self.capacity
        self._filled_at_s = now_s

    def fill(self, now_s: float) -> None:
        gained = (now_s - self._filled_at_s) * self.per_minute / _MINUTE_S
        self.level = min(self.capacity, self.level + gained)
        self._filled_at_s = now_s

    def lacks_s(self, cost: float) -> float:
        """Return how long until the bucket has room for a cost.

        A cost above the capacity needs a full bucket.
        """
        return max(0.0, (min(cost, self.capacity) - self.level) * _MINUTE_S / self.per_minute)

    @property
    def resets_in_s(self) -> float:
        return (self.capacity - self.level) * _MINUTE_S / self.per_minute


class ProviderLimits:
    """Refuses calls beyond the limits, and charges for the others."""

    def __init__(self, *, limits: QuotaLimits, window_s: float, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        now_s = clock.now_s()
        self._buckets = {
            name: _Bucket(per_minute=limit, window_s=window_s, now_s=now_s)
            for name, limit in limits.given.items()
            if name in {"rpm", "tpm", "itpm", "otpm"}
        }
        self._running = 0

    def begin(self, size: RehearsedCall) -> OverLimit | None:
        """Charge for a call that begins, or return the limit that refuses it."""
        calls_allowed = self.limits.in_flight
        if calls_allowed is not None and self._running >= calls_allowed:
            return OverLimit("in_flight", _MANY_CALLS_RETRY_S)
        costs = self._costs(size, first=True)
        now_s = self._clock.now_s()
        for bucket in self._buckets.values():
            bucket.fill(now_s)
        waits = {name: bucket.lacks_s(costs[name]) for name, bucket in self._buckets.items()}
        name = max(waits, key=waits.__getitem__, default="")
        if waits and waits[name] > 0:
            return OverLimit(name, waits[name])
        self._charge(costs)
        self._running += 1
        return None

    def end(self, size: RehearsedCall) -> None:
        """Charge for the answer of a call that ends, or give back what it did not need."""
        self._running -= 1
        self._charge(self._costs(size, first=False))

    def headers(self) -> dict[str, str]:
        """Return the headers that say what is left, as OpenAI's server sends them."""
        now_s = self._clock.now_s()
        named = {"requests": "rpm", "tokens": "tpm" if "tpm" in self._buckets else "itpm"}
        headers: dict[str, str] = {}
        for name, limit in named.items():
            bucket = self._buckets.get(limit)
            if bucket is None:
                continue
            bucket.fill(now_s)
            remaining = max(0.0, bucket.level) / bucket.capacity * bucket.per_minute
            headers |= {
                f"x-ratelimit-limit-{name}": str(bucket.per_minute),
                f"x-ratelimit-remaining-{name}": str(int(remaining)),
                f"x-ratelimit-reset-{name}": f"{bucket.resets_in_s:.3f}s",
            }
        return headers

    def _costs(self, size: RehearsedCall, *, first: bool) -> dict[str, float]:
        """Return what is charged as a call begins (`first`), or the correction at its end."""
        rule = self.limits.charge
        if first:
            out = 0 if rule is ChargeRule.INPUT_THEN_OUTPUT else size.most_out
            return {
                "rpm": 1,
                "tpm": size.tokens_in + out,
                "itpm": size.tokens_in,
                "otpm": out,
            }
        out = {
            ChargeRule.INPUT_THEN_OUTPUT: size.tokens_out,
            ChargeRule.MAX_THEN_REFUND: size.tokens_out - size.most_out,
            ChargeRule.MAX_KEPT: 0,
        }[rule]
        return {"rpm": 0, "tpm": out, "itpm": 0, "otpm": out}

    def _charge(self, costs: dict[str, float]) -> None:
        for name, bucket in self._buckets.items():
            bucket.level = min(bucket.capacity, bucket.level - costs[name])
