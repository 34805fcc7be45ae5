"""Sends publish orders in the background, in the agent that wrote them."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from docllm.producer.ports import Order
from docllm.schemas.codes import Code
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)


class OrderSender(Protocol):
    """Sends publish orders; the relay does."""

    async def send(self, orders: Sequence[Order]) -> None:
        """Publish orders that this process has just written; failed items stay with the relay."""
        ...

    def waiting(self) -> int:
        """Return how many records the bus has not confirmed."""
        ...


class OwnOrders:
    """Sends the publish orders that this agent wrote; the relay sends those left behind."""

    def __init__(self, relay: OrderSender) -> None:
        self._relay = relay
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, orders: Sequence[Order]) -> None:
        """Send orders in the background."""
        if orders:
            task = asyncio.get_running_loop().create_task(self._relay.send(orders))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def flush(self, timeout_s: float) -> None:
        """Wait until the orders in progress are sent, for at most `timeout_s`.

        Orders that are not sent by then stay in the ledger; the log says what did not answer.
        """
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        if late:
            waiting = self._relay.waiting()
            log.warning(
                "%s within %.0f s; an agent's relay sends these records again",
                f"the bus did not confirm {number_of(waiting, 'record')}"
                if waiting
                else "the database did not answer for the records that were sent",
                timeout_s,
                extra={"code": Code.ORDERS_STUCK},
            )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning(
                "publish orders were not sent and are left to the relay: %s", task.exception()
            )
