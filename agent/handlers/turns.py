"""The port through which a handler's calls wait for their turn, and say how they ended.

Tested by tests/unit/agent/handlers/test_runner.py.
"""

from dataclasses import dataclass
from typing import Protocol

from agent.outcome import Dead, Retry, Snooze, Succeeded
from agent.ports import CallFailed, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended: its reply and what became of it; None if it was cancelled before."""

    reply: Reply | CallFailed | None = None
    outcome: Succeeded | Retry | Snooze | Dead | None = None


class CallTurn(Protocol):
    """The permission to make one call."""

    def ended(self, end: CallEnd | None) -> None:
        """Give the permission back; None means that no call was made."""
        ...


class Turns(Protocol):
    """The turns of one attempt's calls."""

    async def next(self, length: int, most_out: int | None, wait_s: float) -> CallTurn | None:
        """Wait until a call may be made; None if it may not within `wait_s`.

        `length` is the request's, in bytes, and `most_out` how many tokens its answer may have.
        """
        ...


class FreeTurn:
    """A turn outside all limits."""

    def ended(self, end: CallEnd | None) -> None:
        """Do nothing."""


class FreeTurns:
    """Turns without a limit."""

    async def next(self, _length: int, _most_out: int | None, _wait_s: float) -> CallTurn:
        """Let the call be made at once."""
        return FreeTurn()
