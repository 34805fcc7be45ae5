"""The requests to stop that this process has got."""

import asyncio
from collections.abc import Callable


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
