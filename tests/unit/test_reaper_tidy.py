"""What a reaper puts in order each minute."""

import asyncio
from typing import Any, cast

import pytest

from agent.ledger import lease, sweep
from agent.reaper import Reaper, Sweep
from schemas.topics import Topics


class Rested(Exception):  # noqa: N818 - it is no error: the round is over
    """The reaper waits for its next round."""


class OneRound:
    """A clock on which nobody waits, a database that notes what it is asked, and topics that nobody reaches."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def run(self, work: Any) -> frozenset[Any]:
        self.asked.append(work)
        return frozenset()

    async def lane(self, work: Any) -> Any:
        return work()

    async def sleep(self, _seconds: float) -> None:
        raise Rested

    async def backlog(self, *_: Any) -> None:
        raise OSError("away")


def test_each_round_sums_up_counts_and_forgets_agents_though_kafka_is_away() -> None:
    """One duty that fails holds up no other."""
    parts = OneRound()
    shared = dict.fromkeys(("database", "lane", "clock", "admin", "relay", "heartbeat"), cast("Any", parts)) | {"lane": parts.lane}

    async def tidied() -> None:
        woken = Sweep(600.0, asyncio.Event())
        told = {"agents_gone": lambda _: None, "finished": dict}
        await Reaper(**shared, topics=Topics("g", ()), locks=None, sweep=woken, **told).tidy_forever()

    with pytest.raises(Rested):
        asyncio.run(tidied())

    assert {sweep.compact, lease.forget} <= set(parts.asked)
