"""The calls on an attempt that a handler outside the event loop makes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Answered = Callable[["asyncio.Task[Any]"], None]


class ServedCalls:
    """Carries out calls until the attempt has ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    def begin(
        self, call: Callable[[], Coroutine[Any, Any, Any]], answered: Answered
    ) -> "asyncio.Task[Any] | None":
        """Begin a call; `answered` gets the end of its task.

        Returns the task, or None if the attempt has ended.
        """
        if self._ended:
            return None
        task = asyncio.get_running_loop().create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(answered)
        return task

    async def end(self) -> None:
        """End the calls that are under way, so that their cost is known; refuse all others."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
