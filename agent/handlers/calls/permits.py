"""The port through which a handler's calls wait for their permit, and say how they ended."""

from dataclasses import dataclass
from typing import Protocol

from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Retry, Snooze, Succeeded
from docllm.agent.quota.limit import FREE, Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended: its reply and what became of it; None if it was cancelled before."""

    reply: Reply | CallFailed | None = None
    outcome: Succeeded | Retry | Snooze | Dead | None = None


class CallPermits(Protocol):
    """Where one attempt's calls get their permits."""

    async def acquire(self, length: int, most_out: int | None, wait_s: float) -> Permit | None:
        """Wait until a call may be made; None if it may not within `wait_s`.

        `length` is the request's, in bytes, and `most_out` how many tokens its answer may have.
        """
        ...

    def release(self, permit: Permit, end: CallEnd | None) -> None:
        """Give a permit back; None means that no call was made."""
        ...

    def close(self) -> None:
        """Give back what was reserved for calls that were not made."""
        ...


class FreePermits:
    """Permits without a limit."""

    async def acquire(self, _length: int, _most_out: int | None, _wait_s: float) -> Permit:
        """Let the call be made at once."""
        return FREE

    def release(self, permit: Permit, end: CallEnd | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


FREE_PERMITS = FreePermits()
