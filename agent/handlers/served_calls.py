"""The calls that a handler outside the event loop makes through its attempt's context."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.blocking import ContextCall, carry_out

Answered = Callable[["asyncio.Task[Any]"], None]


class ServedCalls:
    """Carries out calls until the attempt has ended."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    def begin(self, wanted: ContextCall, arguments: Mapping[str, Any], answered: Answered) -> bool:
        """Begin a call; return False if the attempt has ended. `answered` gets its task's end."""
        if self._ended:
            return False
        task = asyncio.get_running_loop().create_task(carry_out(self._context, wanted, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(answered)
        return True

    async def end(self) -> None:
        """End the calls that are under way, so that their cost is known; refuse all others."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
