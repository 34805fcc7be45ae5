"""The thread of the heartbeat tells its agent what went wrong at the end."""

import asyncio

import pytest

from agent.membership.heartbeat import HeartbeatThread
from schemas.errors import DeniedError
from schemas.runtime.executors import InlineExecutor


class RefusedAtTheEnd:
    """A heartbeat whose database user may not write that the agent stopped."""

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Fail as the database makes it fail."""
        raise DeniedError("the database refuses a right: UPDATE on agent")


def test_a_missing_right_at_the_end_is_raised_in_the_agent() -> None:
    """An error that stays in the thread is a traceback, and the agent ends with 0."""
    beating = HeartbeatThread(RefusedAtTheEnd(), InlineExecutor())  # type: ignore[arg-type]
    beating.start()

    with pytest.raises(DeniedError, match="UPDATE"):
        beating.stop()
