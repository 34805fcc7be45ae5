"""How an agent ends what goes on at once."""

import asyncio

import pytest

from agent import lifecycle


def test_a_cancel_that_a_library_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes it for the end of a wait of its own goes on; an agent once stood there for ever, with nothing left to do."""
    monkeypatch.setattr(lifecycle, "CANCEL_AGAIN_S", 0.01)
    lost = []

    async def duty() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append("the first")

    async def failing() -> None:
        raise ValueError("it is not for who waits")

    async def run() -> list[bool]:
        tasks = [asyncio.create_task(duty()), asyncio.create_task(failing())]
        await asyncio.sleep(0)
        await asyncio.wait_for(lifecycle.end(tasks), 20)
        return [task.cancelled() for task in tasks]

    assert (asyncio.run(run()), lost) == ([True, False], ["the first"])
