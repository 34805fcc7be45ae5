"""Bounds the bytes of documents that are in memory at once, before they are text."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BytesInFlight:
    """At most `most` bytes are held at once; who wants more waits, in the order of asking."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes, or all of them if they are fewer."""
        size = min(size, self._most)
        if self._waiting or size > self._free:
            await self._wait(size)
        else:
            self._free -= size
        try:
            yield
        finally:
            self._give_back(size)

    async def _wait(self, size: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except BaseException:
            # Its turn may have come already; else those behind it may fit now.
            self._give_back(size if turn.done() and not turn.cancelled() else 0)
            raise

    def _give_back(self, size: int) -> None:
        self._free += size
        while self._waiting:
            next_size, turn = self._waiting[0]
            if not turn.done() and next_size > self._free:
                return
            self._waiting.popleft()
            if not turn.done():  # a cancelled one is done
                self._free -= next_size
                turn.set_result(None)
