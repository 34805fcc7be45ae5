"""Publish orders are sent in the background by the agent that wrote them."""

import asyncio
from collections.abc import Sequence

import pytest

from docllm.agent.ports import Order
from docllm.producer.ports import Item
from docllm.producer.publishing.own_orders import OwnOrders

ORDER = Order(1, "g", "tasks", (Item(0, 7, 0),))


class FakeRelay:
    """Sends when it is told to, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go_on = asyncio.Event()
        self.sent: list[Order] = []
        self.unconfirmed = 1
        self._error = error

    async def send(self, orders: Sequence[Order]) -> None:
        await self.go_on.wait()
        if self._error is not None:
            raise self._error
        self.sent += orders

    def waiting(self) -> int:
        return self.unconfirmed


def test_an_agent_waits_for_its_orders_for_a_limited_time() -> None:
    """Orders that are late stay with the relay."""

    async def run() -> tuple[list[Order], list[Order]]:
        relay = FakeRelay()
        own_orders = OwnOrders(relay)
        own_orders.send([ORDER])
        own_orders.send([])
        await own_orders.flush(0.0)
        before = list(relay.sent)
        relay.go_on.set()
        await own_orders.flush(5.0)
        return before, relay.sent

    assert asyncio.run(run()) == ([], [ORDER])


@pytest.mark.parametrize(
    ("unconfirmed", "message"),
    [(2, "the bus did not confirm 2 records"), (0, "the database did not answer")],
)
def test_the_log_names_what_keeps_orders(
    caplog: pytest.LogCaptureFixture, unconfirmed: int, message: str
) -> None:
    """Sending needs the bus for the records, and the database to delete the order."""

    async def run() -> None:
        relay = FakeRelay()
        relay.unconfirmed = unconfirmed
        own_orders = OwnOrders(relay)
        own_orders.send([ORDER])
        await own_orders.flush(0.0)
        relay.go_on.set()
        await own_orders.flush(5.0)

    asyncio.run(run())

    assert [text[: len(message)] for text in caplog.messages] == [message]


def test_orders_that_fail_are_left_to_the_relay(caplog: pytest.LogCaptureFixture) -> None:
    """The agent goes on, and its log says why."""

    async def run() -> None:
        relay = FakeRelay(ConnectionError("no broker"))
        relay.go_on.set()
        own_orders = OwnOrders(relay)
        own_orders.send([ORDER])
        await own_orders.flush(5.0)
        await asyncio.sleep(0)

    asyncio.run(run())

    assert "are left to the relay: no broker" in caplog.text
