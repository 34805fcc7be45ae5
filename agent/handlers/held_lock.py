"""What a handler sees of a lock, the locks of its attempt, and the port that takes them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from docllm.agent.handlers.attempt_time import AttemptTime
from docllm.agent.handlers.calls.results import LeaseLostError, WaitedTooLongError

NAME_CHARS = 191


class LockError(ValueError):
    """A handler asks for a lock in a way that can never work."""


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that an attempt holds.

    `fence`, the lock's token, is higher than that of every earlier holder. A resource that keeps
    the highest one, and refuses a lower one, is safe even from an attempt that does not know yet
    that it lost the lock.
    """

    name: str
    fence: int
    _require: Callable[[], None] = field(repr=False, compare=False)

    def check(self) -> None:
        """Raise LeaseLostError if another attempt may hold the lock by now."""
        self._require()


class AttemptLocks(Protocol):
    """The locks of one attempt."""

    def ask(self, name: str) -> None:
        """Ask for a lock, to be given back however that ends.

        Raises LockError if the attempt holds the lock, or waits for it, or has ended.
        """
        ...

    async def wait(self, name: str, wait_s: float, *, once: bool = False) -> int | None:
        """Return the lock's token once it is held; None if it is not free within `wait_s`.

        With `once`, None also if it is not free when it is asked for.
        """
        ...

    def give_back(self, name: str) -> None:
        """Give a lock back, or wait for it no longer."""
        ...


class FreeLocks:
    """Locks that nobody else takes."""

    def __init__(self) -> None:
        self._token = 0

    def ask(self, name: str) -> None:
        """Do nothing."""

    async def wait(self, _name: str, _wait_s: float, *, once: bool = False) -> int | None:
        """Take it at once."""
        del once
        self._token += 1
        return self._token

    def give_back(self, name: str) -> None:
        """Do nothing."""


@dataclass(slots=True, kw_only=True)
class ContextLocks:
    """The locks of one attempt. `may_call` returns whether the claim's lease is good."""

    locks: AttemptLocks
    time: AttemptTime
    may_call: Callable[[], bool]
    _names: set[str] = field(default_factory=set, init=False)

    async def take(self, name: str, wait_s: float | None) -> int:
        """Take a lock, which must be given back, and return its token.

        Raises LockError, WaitedTooLongError and LeaseLostError.
        """
        most_s = self.time.wait_s(wait_s)
        self.locks.ask(require_name(name))
        self._names.add(name)
        try:
            return await self._token(name, most_s or self.time.wait_s(None), once=most_s == 0)
        except BaseException:
            self.give_back(name)
            raise

    async def _token(self, name: str, wait_s: float, *, once: bool) -> int:
        token = await self.locks.wait(name, wait_s, once=once)
        if token is None:
            raise WaitedTooLongError
        self.check()
        return token

    def check(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks.

        After a long stall, the claim may be overdue even though the agent's lease is good.
        """
        if not self.may_call() or self.time.of_claim_s <= 0:
            raise LeaseLostError

    def give_back(self, name: str) -> None:
        """Give a lock back."""
        self._names.discard(name)
        self.locks.give_back(name)

    def give_back_all(self) -> None:
        """Give every lock back that the attempt has taken."""
        for name in tuple(self._names):
            self.give_back(name)


def require_name(name: object) -> str:
    """Return the name of a lock. Raises LockError for one that the ledger cannot tell apart."""
    if not isinstance(name, str):
        raise LockError(f"the name of a lock is a string, not {type(name).__name__}")
    if not 1 <= len(name) <= NAME_CHARS:
        raise LockError(
            f"the name of a lock has {len(name)} characters; 1 to {NAME_CHARS} are allowed"
        )
    if not name.isprintable() or name != name.strip():
        raise LockError(
            f"the name of a lock, {name!a}, has characters that cannot be printed, "
            "or blanks around it; leave them out"
        )
    return name
