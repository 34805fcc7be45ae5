"""What a hook may use of its agent: calls while its route is open, and no locks."""

from collections.abc import Callable
from dataclasses import dataclass

from docllm.agent.handlers.calls.permits import CallPermit, CallPermits
from docllm.agent.handlers.held_lock import LockError


@dataclass(slots=True, kw_only=True, eq=False)
class HookPermits:
    """The permits of a hook's calls.

    While its route is closed, or it may take no route, no call is made.
    """

    call_permits: CallPermits
    closed: Callable[[], bool]

    def close(self) -> None:
        """Give back what was reserved."""
        self.call_permits.close()

    async def acquire(self, length: int, most_out: int | None, wait_s: float) -> CallPermit | None:
        """Wait until a call may be made; None if it may not."""
        return None if self.closed() else await self.call_permits.acquire(length, most_out, wait_s)


class NoLocks:
    """Refuses every lock: a hook has no claim under which it could hold a lock."""

    def ask(self, name: str) -> None:
        """Raise LockError."""
        raise LockError(f"a hook cannot take the lock {name!r}; take it in the task's handler")

    async def wait(self, _name: str, _wait_s: float) -> int | None:
        """Return None."""
        return None

    def give_back(self, name: str) -> None:
        """Do nothing."""
