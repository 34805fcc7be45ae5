"""The locks that a handler holds, under the claim and the lease of its attempt."""

from collections.abc import Callable

from docllm.agent.handlers.attempt_time import AttemptTime
from docllm.agent.handlers.calls.results import LeaseLostError, WaitedTooLongError
from docllm.agent.handlers.held_lock import AttemptLocks, require_name

# Longest wait for a lock, as a share of the attempt's time; the rest is for calls.
_WAIT_SHARE = 0.5


class ContextLocks:
    """The locks of one attempt. `may_call` returns whether the claim's lease is good."""

    def __init__(
        self, *, locks: AttemptLocks, time: AttemptTime, may_call: Callable[[], bool]
    ) -> None:
        self._locks = locks
        self._time = time
        self._may_call = may_call
        self._names: set[str] = set()

    async def take(self, name: str) -> int:
        """Take a lock, which must be given back, and return its token.

        Raises LockError, WaitedTooLongError and LeaseLostError.
        """
        self._locks.ask(require_name(name))
        self._names.add(name)
        try:
            return await self._token(name)
        except BaseException:
            self.give_back(name)
            raise

    async def _token(self, name: str) -> int:
        token = await self._locks.wait(name, self._time.of_claim_s * _WAIT_SHARE)
        if token is None:
            raise WaitedTooLongError
        self.check()
        return token

    def check(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks.

        After a long stall, the claim may be overdue even though the agent's lease is good.
        """
        if not self._may_call() or self._time.of_claim_s <= 0:
            raise LeaseLostError

    def give_back(self, name: str) -> None:
        """Give a lock back."""
        self._names.discard(name)
        self._locks.give_back(name)

    def give_back_all(self) -> None:
        """Give every lock back that the attempt has taken."""
        for name in tuple(self._names):
            self.give_back(name)
