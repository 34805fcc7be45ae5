"""What slots and arrivals do with routes: a record has one, a call needs its permission, and every permission goes back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import orjson
import pytest

from agent.arrivals import Arrivals
from agent.breaker import Names, Routes
from agent.entry import Entry
from agent.guard import Guards
from agent.lease import Lease
from agent.outcome import Outcome, Released, Retry, Snooze, Succeeded
from agent.policy import Tier
from agent.ports import Partition, Record, Row
from agent.settle import Settler
from agent.slots import Slots
from agent.telemetry import Counts
from agent.worker import Worker
from schemas.clock import SystemClock
from schemas.config import Config
from schemas.envelope import Publication, encode
from tests.unit.breakers import GOOD, ROUTE, call, failed, routes

PARTITION = Partition("g.tasks", "id", 0, 1)
LONGEST = Tier("1h", 3600.0)


@dataclass
class FakeSettler:
    outcomes: list[Outcome] = field(default_factory=list)
    unsettled: int = 0

    def put(self, _entry: Entry, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class FakeWorker:
    """Ends as `act` does; notes the limits that it was given."""

    act: Callable[[], Awaitable[Outcome]]
    limits_s: list[float | None] = field(default_factory=list)

    async def work(self, _entry: Entry, limit_s: float | None) -> Outcome:
        self.limits_s.append(limit_s)
        return await self.act()


class Bench:
    """Slots over fakes, and the routes that they ask."""

    def __init__(self, table: Routes, act: Callable[[], Awaitable[Outcome]]) -> None:
        self.table, self.settler, self.worker, self.counts = table, FakeSettler(), FakeWorker(act), Counts()
        self.clock = SystemClock()

    def run(self, count: int = 1, *, cancel: bool = False) -> list[Outcome]:
        """Start so many tasks at once; return how they are settled."""
        asyncio.run(self._run(count, cancel=cancel))
        return self.settler.outcomes

    async def _run(self, count: int, *, cancel: bool) -> None:
        slots = Slots(
            size=8,
            worker=cast("Worker", self.worker),
            settler=cast("Settler", self.settler),
            routes=self.table,
            guards=Guards(clock=self.clock, longest_tier=LONGEST, take_turn=_no_turn),
            longest_tier=LONGEST,
            clock=self.clock,
            counts=self.counts,
            freed=lambda: None,
        )
        for number in range(count):
            slots.start(claimed(number, self.clock.now_s()))
        await asyncio.sleep(0)
        await slots.finish(0 if cancel else 5.0)


async def _no_turn(_guard_id: int, _task_id: int) -> bool:
    raise AssertionError("no guard is raised")


def claimed(task_id: int, now_s: float) -> Entry:
    row = Row(task_id, 1, 1, 9, 0, 0, 5, 0, 0, 0.0, False, "document", b"k", "b")  # noqa: FBT003 - a row as it is read
    entry = Entry(PARTITION, task_id, 0, Publication("ledger", "g", "b", task_id, 0), b"{}", None, ROUTE)
    entry.row, entry.owner, entry.lease, entry.claimed_s = row, 9, Lease(1, now_s), now_s
    return entry


def ending(outcome: Outcome) -> Callable[[], Awaitable[Outcome]]:
    async def act() -> Outcome:
        await asyncio.sleep(0)  # all have started when the first one ends
        return outcome

    return act


async def broken() -> Outcome:
    raise RuntimeError("a bug of ours")


async def hanging() -> Outcome:
    await asyncio.sleep(60)
    raise AssertionError("it is cancelled before")


def idle(table: Routes) -> bool:
    """Return whether every permission came back."""
    return all(route.idle for route in table)


def test_what_an_outage_did_is_settled_uncounted() -> None:
    """The routes decide what is settled, call by call."""
    bench = Bench(routes(slots=3), ending(failed()))

    assert [type(outcome) for outcome in bench.run(5)] == [Retry, Retry, Snooze, Snooze, Snooze]
    assert (bench.counts.calls, idle(bench.table)) == (5, True)


def test_a_task_whose_route_stopped_meanwhile_is_given_back() -> None:
    """It was claimed when there was room; no call is made."""
    bench = Bench(routes(slots=3), ending(GOOD))
    for _ in range(3):
        call(bench.table, failed(), bench.clock.now_s())

    assert [type(outcome) for outcome in bench.run(4)] == [Released] * 4
    assert (bench.counts.calls, bench.worker.limits_s) == (0, [])


def test_a_probe_has_a_limit_of_its_own() -> None:
    """Of tasks that were claimed together one is the probe."""
    bench = Bench(routes(slots=3), ending(GOOD))
    for _ in range(3):
        call(bench.table, failed(), bench.clock.now_s() - 10.0)

    assert [type(outcome) for outcome in bench.run(3)] == [Released, Released, Succeeded]
    assert bench.worker.limits_s == [60.0]
    assert not bench.table.closed(ROUTE, bench.clock.now_s())


@pytest.mark.parametrize(("act", "cancel"), [(broken, False), (hanging, True)])
def test_every_permission_goes_back(act: Callable[[], Awaitable[Outcome]], *, cancel: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Also where the attempt ends in a bug, or is cancelled; neither says anything about the route."""
    bench = Bench(routes(slots=3), act)
    bench.run(8, cancel=cancel)

    assert idle(bench.table)
    assert not bench.table.closed(ROUTE, bench.clock.now_s())


@pytest.mark.parametrize(("line", "route"), [({"id": "a", "prompt": "p", "model": "large"}, "large"), (None, ROUTE)])
def test_a_record_comes_with_its_route(line: dict[str, str] | None, route: str) -> None:
    """By the model that its value names; the default one where there is no value."""
    arrivals = Arrivals(ledger_id="00" * 16, group="g", naming=Names(Config()))
    headers = list(encode(Publication("00" * 16, "g", "b", 7, 0)))

    read = arrivals.read(Record(PARTITION, 0, 0, b"k", None if line is None else orjson.dumps(line), headers))

    assert isinstance(read, Entry)
    assert read.route == route
