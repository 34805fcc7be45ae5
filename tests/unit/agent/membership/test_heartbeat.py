"""The thread of the heartbeat tells its agent what went wrong at the end."""

import asyncio
import gc

import pytest

from docllm.agent.membership.heartbeat import HeartbeatThread
from docllm.schemas.errors import DeniedError
from docllm.schemas.runtime.executors import InlineExecutor


class RefusedAtTheEnd:
    """A heartbeat whose database user may not write that the agent stopped."""

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Fail as the database makes it fail."""
        raise DeniedError("the database refuses a right: UPDATE on agent")


def test_a_heartbeat_that_was_never_started_leaves_no_task_behind(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent whose handler cannot be used ends before; then only that error is printed."""
    HeartbeatThread(RefusedAtTheEnd(), executor=InlineExecutor())  # type: ignore[arg-type]
    gc.collect()

    assert "destroyed but it is pending" not in caplog.text
    assert not [str(each.message) for each in recwarn if each.category is RuntimeWarning]


def test_a_missing_right_at_the_end_is_raised_in_the_agent() -> None:
    """An error that stays in the thread is a traceback, and the agent ends with 0."""
    beating = HeartbeatThread(RefusedAtTheEnd(), executor=InlineExecutor())  # type: ignore[arg-type]
    beating.start()

    with pytest.raises(DeniedError, match="UPDATE"):
        beating.stop()
