"""Sends publish orders in the background, in the agent that wrote them."""

import asyncio
import logging
from collections.abc import Sequence

from agent.ports import Order
from producer.relay.relay import Relay

log = logging.getLogger(__name__)


class Publishing:
    """Sends the publish orders that this agent wrote; the relay sends those left behind."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, orders: Sequence[Order]) -> None:
        """Send orders in the background."""
        if orders:
            task = asyncio.get_running_loop().create_task(self._relay.send(orders))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def finish(self, timeout_s: float) -> None:
        """Wait until the orders in progress are sent, for at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("orders are left to the relay: %s", task.exception())
