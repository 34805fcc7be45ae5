"""What a handler sees of a lock, and the port that takes the locks of its attempt."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

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
