"""The limits that handlers name: the uses of one attempt, and the port that lets them begin."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from docllm.agent.handlers.attempt_time import AttemptTime
from docllm.agent.handlers.calls.results import LeaseLostError, WaitedTooLongError
from docllm.agent.quota.limit import Permit


class LimitError(ValueError):
    """A handler names a limit that the settings do not have."""


class NamedLimits(Protocol):
    """The limits of the settings' sections `[limits.NAME]`."""

    async def wait_for_use(self, name: str, wait_s: float) -> Permit | None:
        """Return the permit of a use; None if none may begin within `wait_s`.

        Raises LimitError for an unknown name.
        """
        ...

    def end_use(self, permit: Permit) -> None:
        """Give the permit of a use back."""
        ...


@dataclass(slots=True, kw_only=True)
class ContextLimits:
    """The uses of one attempt. `may_call` returns whether the claim's lease is good."""

    limits: NamedLimits
    time: AttemptTime
    may_call: Callable[[], bool]
    _uses: dict[int, Permit] = field(default_factory=dict, init=False)
    _numbers: Iterator[int] = field(default_factory=count, init=False)

    async def take(self, name: str, wait_s: float | None) -> int:
        """Begin a use, which must be given back, and return its number.

        Raises LimitError, WaitedTooLongError and LeaseLostError.
        """
        permit = await self.limits.wait_for_use(name, self.time.wait_s(wait_s))
        if permit is None:
            raise WaitedTooLongError
        if not self.may_call():
            self.limits.end_use(permit)
            raise LeaseLostError
        number = next(self._numbers)
        self._uses[number] = permit
        return number

    def give_back(self, number: int) -> None:
        """End a use, if it has not ended with its attempt."""
        permit = self._uses.pop(number, None)
        if permit is not None:
            self.limits.end_use(permit)

    def give_back_all(self) -> None:
        """End every use."""
        for number in tuple(self._uses):
            self.give_back(number)
