"""The time of an attempt: how much is used and left, and when its handler should end."""

import math

from docllm.agent.handlers.decisions import SoftLimitError
from docllm.agent.ports import Clock
from docllm.schemas.settings.config import TypeConfig

_WAIT_SHARE = 0.5


class AttemptTime:
    """The time since an attempt began, in a claim of `claim_s` seconds, under its type's limits.

    It begins now, or has begun when the clock showed `began_s`.
    """

    def __init__(
        self, *, clock: Clock, claim_s: float, rules: TypeConfig, began_s: float | None = None
    ) -> None:
        self._clock = clock
        self._claim_s = claim_s
        self._rules = rules
        self._told_to_end = False
        self.began_s = clock.now_s() if began_s is None else began_s

    @property
    def elapsed_ms(self) -> int:
        """How much time the attempt has used."""
        return round((self._clock.now_s() - self.began_s) * 1000)

    @property
    def of_claim_s(self) -> float:
        """How much of the claim's time is left."""
        return self._claim_s - self.elapsed_ms / 1000

    @property
    def left_s(self) -> float:
        """How much time is left in the claim and under the time limit of the type."""
        limit_s = self._rules.time_limit_s
        own_s = math.inf if limit_s is None else limit_s - self.elapsed_ms / 1000
        return min(self.of_claim_s, own_s)

    def wait_s(self, asked_s: float | None) -> float:
        """Return how long a handler that asks for `asked_s` may wait for a lock or a limit.

        It is half of the claim's time at most; the rest is for calls. Raises ValueError.
        """
        half_s = self.of_claim_s * _WAIT_SHARE
        if asked_s is None:
            return half_s
        if not asked_s >= 0:
            raise ValueError(f"wait_s is {asked_s}; it is a number of seconds from 0 on, or None")
        return min(asked_s, half_s)

    @property
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""
        limit_s = self._rules.soft_limit_s
        return limit_s is not None and self.elapsed_ms >= limit_s * 1000

    def begin_again(self) -> None:
        """Tell the handler again that it is overdue."""
        self._told_to_end = False

    def require(self) -> None:
        """Raise SoftLimitError the first time after the soft limit."""
        if self.overdue and not self._told_to_end:
            self._told_to_end = True
            raise SoftLimitError(f"{self._rules.soft_limit_s:g} s have passed")
