"""Passes events from the consumer thread to the event loop, in order and bounded.

Knows nothing of Kafka.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from docllm.agent.ports import Event

log = logging.getLogger(__name__)

MAX_UNTAKEN = 4  # events that the loop has not taken yet; with more, the thread reads no further


class ThreadBridge:
    """One direction: one thread gives, one loop takes."""

    def __init__(
        self, *, loop: asyncio.AbstractEventLoop, deliver: Callable[[Event], None]
    ) -> None:
        self.loop = loop
        self._deliver = deliver
        self._given = 0
        self._taken = threading.Condition()
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether the loop is behind."""
        return self._given > MAX_UNTAKEN

    def wait_for_room(self, timeout_s: float) -> None:
        """Wait until the loop has caught up, at most `timeout_s`."""
        with self._taken:
            self._taken.wait_for(lambda: not self.full, timeout_s)

    def give(self, event: Event) -> None:
        """Let the loop deliver an event after all events given before."""
        with self._taken:
            self._given += 1
        self.call(lambda: self._take(event))

    def end(self, event: Event | None) -> None:
        """Deliver a last event, in the loop's thread, and nothing after it."""
        if not self._ended and event is not None:
            self._deliver(event)
        self._ended = True

    def call(self, call_back: Callable[[], object]) -> None:
        """Run something in the loop's thread; do nothing if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(call_back)
        except RuntimeError:
            log.debug("the event loop is closed")

    def _take(self, event: Event) -> None:
        try:
            if not self._ended:
                self._deliver(event)
        finally:
            with self._taken:
                self._given -= 1
                self._taken.notify()
