"""An exporter reads the group once for all who ask, and keeps what it read."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.request import urlopen

from producer.metrics.exporter import Exporter
from producer.metrics.http_server import HttpServer
from producer.metrics.scale import ScaleLimits
from schemas.errors import UnreachableError
from schemas.runtime.address import Address
from schemas.settings.config import Config
from schemas.task.topics import Topics
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
    """A bus that does not answer."""

    async def describe(self, _names: object) -> object:
        raise UnreachableError("away")


def exporter(ledger: Any) -> Exporter:
    return Exporter(
        transactions=ledger,
        admin=Bus(),  # type: ignore[arg-type]
        topics=Topics("g", ()),
        config=Config(),
        wanted=ScaleLimits(),
        clock=HandClock(),
        schema="0",
    )


def test_fifty_watchers_at_once_cost_one_reading() -> None:
    """They all get the same page; a page never reads the ledger."""
    ledger = Ledger()
    metrics = exporter(ledger)
    asyncio.run(metrics.read())
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
