"""The first request starts a drain, the second one hurries it."""

import asyncio

import pytest

from docllm.agent.process.stop_request import StoppedAtStart, StopRequest, starting


def test_the_time_to_leave_begins_with_the_first_signal() -> None:
    """The time to leave begins with the first signal; later ones do not extend it."""
    messages: list[str] = []
    stop = StopRequest(lambda: messages.append("leaving"))

    for _ in range(3):
        stop.signal()
    stop.leave()

    assert messages == ["leaving"]
    assert stop.hurry.is_set()


def test_a_stop_ends_the_start_of_an_agent() -> None:
    """A server that does not answer does not keep an agent that has not begun."""

    async def run() -> None:
        stop = StopRequest()
        async with starting(stop):
            stop.signal()
            await asyncio.Event().wait()

    with pytest.raises(StoppedAtStart):
        asyncio.run(run())


def test_a_stop_after_the_start_ends_no_call() -> None:
    """Once the agent works, it drains; errors of its start are raised as they are."""

    async def run() -> None:
        stop = StopRequest()
        async with starting(stop):
            pass
        stop.signal()
        await asyncio.sleep(0)
        async with starting(StopRequest()):
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(run())
