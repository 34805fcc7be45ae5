"""Bounds the bytes of documents that are in memory at once, before they are text."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BytesInFlight:
    """Limits the bytes held in total to `most`; further callers wait, first come, first served."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes, or the whole budget if `size` is larger."""
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
            # The cancelled caller may hold bytes already; otherwise, smaller requests behind it may
            # fit.
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
