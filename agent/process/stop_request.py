"""The requests to stop that this process has got."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class StopRequest:
    """Holds the requests to stop: the first signal starts a drain, the second one hurries it.

    `leaving` is called once, when the drain has begun.
    """

    def __init__(self, leaving: Callable[[], object] | None = None) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self._leaving = leaving

    def signal(self) -> None:
        """Handle one signal."""
        (self.hurry if self.asked.is_set() else self.asked).set()
        self.leave()

    def leave(self) -> None:
        """Note that the drain has begun, whatever caused it."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving()


class StoppedAtStart(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The agent was asked to stop before it began to work."""


@asynccontextmanager
async def starting(stop: StopRequest) -> AsyncIterator[None]:
    """Cancel the body, the start of an agent, when it is asked to stop.

    Raises StoppedAtStart. A server that does not answer would otherwise delay the stop.
    """
    body, is_starting = asyncio.timeout(None), True

    def end(_asked: object) -> None:
        if is_starting:
            body.reschedule(0)

    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        async with body:
            asked.add_done_callback(end)
            try:
                yield
            finally:
                is_starting = False
                asked.cancel()
    except TimeoutError:
        if not body.expired():
            raise
        raise StoppedAtStart from None
