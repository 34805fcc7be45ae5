"""A cancellation ends a script's run, whatever Redis's client makes of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from docllm.agent.quota.redis_scripts import KeysAndArguments, RedisScript
from docllm.schemas.settings.config import Secret


class WaitingScript(RedisScript):
    """A script whose answer waits for `written`, as Redis's client waits for each write."""

    def __init__(self, written: "asyncio.Future[None]", *, fails: bool) -> None:
        super().__init__(url=Secret("redis://h"), script="", group="g")
        self._written, self._fails = written, fails

    async def _answers(self, calls: Sequence[KeysAndArguments]) -> list[Any]:
        await asyncio.wait_for(self._written, 5)
        if self._fails:
            raise ConnectionError
        return [1 for _ in calls]


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "fails"])
def test_a_cancellation_is_not_lost_with_an_answer(*, fails: bool) -> None:
    """Else a duty would run on after a drain had ended it, and the drain would wait for it."""

    async def cancelled() -> None:
        written = asyncio.get_running_loop().create_future()
        script = WaitingScript(written, fails=fails)
        run = asyncio.create_task(script.run([0], lambda _: ([], []), lambda _, one: one))
        await asyncio.sleep(0)
        written.set_result(None)
        run.cancel()
        await run

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
