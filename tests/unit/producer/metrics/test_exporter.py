"""An exporter reads the group once for all who ask, and keeps what it read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.request import urlopen

import pytest

from docllm.producer.metrics.exporter import FRESH_S, Exporter, GroupReaders
from docllm.producer.metrics.http_server import HttpServer
from docllm.producer.metrics.scale import ScaleLimits
from docllm.producer.ports import TopicState
from docllm.schemas.codes import Code
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.topics import Topics
from tests.support.clock import HandClock
from tests.unit.producer.metrics.test_families import NOTHING

WATCHERS = 50


class Ledger:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.readings = 0

    async def read(self, *_: object) -> object:
        self.readings += 1
        return NOTHING


class Bus:
    """A bus that does not answer, or has no topics."""

    is_away = True

    async def describe(self, _names: object) -> dict[str, TopicState]:
        if self.is_away:
            raise UnreachableError("away")
        return {}


def readers(ledger: Any, bus: Any) -> GroupReaders:
    return GroupReaders(ledger, bus, Topics("g", ()))


def exporter(clock: HandClock | None = None) -> Exporter:
    return Exporter(
        group="g",
        config=Config(),
        scale_limits=ScaleLimits(),
        clock=clock or HandClock(),
        schema="0",
    )


def test_fifty_watchers_at_once_cost_one_reading() -> None:
    """All watchers get the same page; a page never reads the ledger."""
    ledger = Ledger()
    metrics = exporter()
    asyncio.run(metrics.read(readers(ledger, Bus())))
    address = Address("127.0.0.1", 0)
    with (
        closing(HttpServer(address=address, pages=metrics.pages, token=None)) as server,
        ThreadPoolExecutor(WATCHERS) as watchers,
    ):
        url = f"http://127.0.0.1:{server.port}/metrics"

        def page(_number: int) -> bytes:
            with urlopen(url, timeout=30) as answer:
                return bytes(answer.read())

        pages = set(watchers.map(page, range(WATCHERS)))

    assert len(pages) == 1
    assert b'docllm_tasks_open{group="g"}' in pages.pop()
    assert ledger.readings == 1


def test_an_old_reading_desires_no_number_of_agents() -> None:
    """An autoscaler that follows the metrics changes nothing then, as with `/scale`."""
    clock = HandClock()
    metrics = exporter(clock)
    asyncio.run(metrics.read(readers(Ledger(), Bus())))
    fresh = {family.name for family in metrics.collect()}
    asyncio.run(clock.sleep(FRESH_S + 1))

    gone = fresh - {family.name for family in metrics.collect()}

    assert gone == {"docllm_agents_desired", "docllm_agents_desired_bound"}


def test_the_ledger_is_up_while_its_reading_is_fresh() -> None:
    """The ledger is down before the first reading, and once the last one is old."""
    clock = HandClock()
    metrics = exporter(clock)

    def up() -> float:
        found = {family.name: family.samples for family in metrics.collect()}
        (sample,) = found["docllm_ledger_up"]
        assert sample.labels == {"group": "g"}
        return sample.value

    assert up() == 0
    asyncio.run(metrics.read(readers(Ledger(), Bus())))
    assert up() == 1
    asyncio.run(clock.sleep(FRESH_S + 1))
    assert up() == 0


def test_a_bus_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not at each reading; and again when it was back meanwhile."""
    ledger, bus = Ledger(), Bus()
    metrics = exporter()

    for is_away in (True, True, False, True, True):
        bus.is_away = is_away
        asyncio.run(metrics.read(readers(ledger, bus)))

    assert ledger.readings == 5
    assert caplog.messages == ["the bus does not answer, its metrics are missing: away"] * 2
    assert {vars(record)["code"] for record in caplog.records} == {Code.SERVER_AWAY}
