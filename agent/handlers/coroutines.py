"""Runs the coroutines of handlers, so that one that ignores its cancellation keeps no slot."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.context import Context
from docllm.agent.handlers.left_functions import LeftFunctions
from docllm.schemas.text.untrusted import ContainedError

# How long a cancelled coroutine may clean up before its attempt ends without it. It is less than a
# drain waits for its cancelled attempts.
CLEAN_UP_S = 3.0


class HandlerCoroutines:
    """Runs coroutine functions, each in an asyncio task of its own.

    asyncio cannot stop a coroutine that ignores its cancellation: it is left over until it returns.
    """

    def __init__(self, *, left: LeftFunctions, clean_up_s: float = CLEAN_UP_S) -> None:
        self._left = left
        self._clean_up_s = clean_up_s

    async def run(
        self, function: Callable[[Any], Coroutine[Any, Any, Any]], context: AttemptContext
    ) -> Any:
        """Return the result of a coroutine function, or raise its error. Raises NoRoomError."""
        self._left.require_room()
        running = asyncio.get_running_loop().create_task(function(Context(context)))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            running.cancel()
            try:
                await asyncio.wait([running], timeout=self._clean_up_s)
            finally:
                if not running.done():
                    self._left.add(running, context)
                    running.add_done_callback(self._returned)
            if not running.done():
                raise
        try:
            return running.result()
        except ContainedError as error:
            # A task may not end by SystemExit or KeyboardInterrupt; an attempt may fail by them.
            raise error.__cause__ or error from None

    def _returned(self, running: "asyncio.Task[Any]") -> None:
        self._left.discard(running)
        if not running.cancelled():
            running.exception()  # nobody else asks for it, which asyncio would log
