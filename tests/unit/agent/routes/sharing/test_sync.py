"""Agents that share facts about routes over a board in memory, on a hand-moved clock."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from docllm.agent.ports.outcome import Outcome
from docllm.agent.routes.sharing.sync import BoardSync
from tests.support.memory_board import MemoryServer
from tests.support.routes import GOOD, ROUTE, BusyAgent, call, failed, notice, routes, snoozed

STEP_S, PAUSE_STEPS = 0.05, 10
FROM_S, TO_S = 6.0, 66.0
Answer = Callable[[float, random.Random], tuple[float, Outcome]]


@dataclass
class HandClock:
    at_s: float = 0.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        raise AssertionError("no date is asked for")

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


def well(_now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Answer."""
    return 0.19, GOOD


def broken(_now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Never answer, as if the agent's own network were down."""
    return 0.05, failed("NETWORK")


def away(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Be down for a minute."""
    return (0.05, failed()) if FROM_S <= now_s < TO_S else (0.19, GOOD)


@dataclass
class Fleet:
    """Agents that look at the board about twice a second, at different moments."""

    answers: list[Answer]
    slots: int = 16
    clock: HandClock = field(default_factory=HandClock)
    dead: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.server = MemoryServer(self.clock.now_s)
        self.agents = [
            BusyAgent(routes(self.slots), answer, self.slots, rng=random.Random(n))  # noqa: S311
            for n, answer in enumerate(self.answers)
        ]
        boards = [self.server.board(f"agent {number}") for number in range(len(self.agents))]
        pairs = zip(self.agents, boards, strict=True)
        self.duties = [
            BoardSync(routes=agent.router, board=board, clock=self.clock, jitter=lambda: 0.5)
            for agent, board in pairs
        ]

    def drive(self, until_s: float) -> None:
        """Let time pass."""
        asyncio.run(self._drive(until_s))

    async def _drive(self, until_s: float) -> None:
        while self.clock.at_s < until_s:
            self.clock.at_s += STEP_S
            step = round(self.clock.at_s / STEP_S)
            for number, (agent, duty) in enumerate(zip(self.agents, self.duties, strict=True)):
                if number not in self.dead:
                    agent.drive(self.clock.at_s, STEP_S)
                    if (step + number) % PAUSE_STEPS == 0:
                        await duty.sync()

    def closed(self) -> list[bool]:
        """Return the agents that take no calls now."""
        return [agent.router.closed(ROUTE, self.clock.at_s) for agent in self.agents]

    def calls(self, from_s: float, to_s: float) -> int:
        """Return how many calls all agents began in an interval."""
        return sum(agent.calls(from_s, to_s) for agent in self.agents)

    def good(self, from_s: float, to_s: float) -> int:
        """Return how many successes all agents had in an interval."""
        return sum(agent.good(from_s, to_s) for agent in self.agents)


def test_a_fleet_probes_as_one_agent_does() -> None:
    """In an outage, eight agents call as one does, and all are back within 6 s of its end."""
    fleet = Fleet([away] * 8)
    fleet.drive(80.0)

    assert fleet.calls(FROM_S + 3.0, TO_S) <= 25
    assert sum(agent.counted() for agent in fleet.agents) <= 8 * 10
    assert fleet.good(TO_S + 6.0, TO_S + 10.0) >= 0.9 * fleet.good(2.0, 6.0)
    assert fleet.closed() == [False] * 8


def test_without_redis_each_agent_probes() -> None:
    """Without Redis an outage only costs more calls."""
    fleet = Fleet([away] * 8)
    fleet.server.away = True
    fleet.drive(80.0)

    assert 8 * 12 <= fleet.calls(FROM_S + 3.0, TO_S) <= 8 * 30
    assert fleet.good(TO_S + 6.0, TO_S + 10.0) >= 0.9 * fleet.good(2.0, 6.0)


def test_probes_of_the_fleet_do_not_overlap() -> None:
    """Only one agent probes at a time, even if probes hang."""

    def hangs(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
        return (30.0, failed("AMBIGUOUS")) if now_s >= FROM_S else (0.19, GOOD)

    fleet = Fleet([hangs] * 4, slots=4)
    fleet.drive(90.0)

    starts = sorted(
        at_s for agent in fleet.agents for at_s in agent.started_s if at_s > FROM_S + 40.0
    )
    assert len(starts) > 10
    assert min(after - before for before, after in pairwise(starts)) >= 2.0


def test_one_agent_that_fails_alone_stops_alone() -> None:
    """An agent whose own network is down stops alone; the others go on undisturbed."""
    fleet = Fleet([broken, well, well])
    fleet.drive(15.0)

    assert fleet.closed() == [True, False, False]
    assert fleet.agents[0].counted() <= 10
    assert all(agent.counted() == 0 for agent in fleet.agents[1:])


def test_an_agent_that_dies_with_the_turn_delays_others_only_briefly() -> None:
    """The turn of an agent that dies runs out after 5 s."""
    fleet = Fleet([away] * 3)
    fleet.drive(TO_S - 10.0)
    while not (
        holders := [n for n in range(3) if fleet.server.places[ROUTE].turn[0] == f"agent {n}"]
    ):
        fleet.drive(fleet.clock.at_s + STEP_S)

    fleet.dead.update(holders)
    fleet.drive(TO_S + 20.0)

    assert [closed for number, closed in enumerate(fleet.closed()) if number not in fleet.dead] == [
        False,
        False,
    ]


@pytest.mark.parametrize("flush", [True, False])
def test_agents_are_in_step_again_when_redis_is_back(*, flush: bool) -> None:
    """After Redis returns, stopped agents stay stopped, and one answer starts all again.

    That holds whether Redis lost its memory or not.
    """
    fleet = Fleet([away] * 4)
    fleet.drive(20.0)
    assert fleet.closed() == [True] * 4
    fleet.server.away = True
    fleet.drive(30.0)
    fleet.server.away = False
    if flush:
        fleet.server.flush()

    fleet.drive(TO_S)
    assert fleet.closed() == [True] * 4
    fleet.drive(TO_S + 10.0)

    assert fleet.closed() == [False] * 4


def test_agents_that_recovered_alone_tell_the_others_later() -> None:
    """Agents that recovered while Redis was away end the stop of the others."""
    fleet = Fleet([away] * 3)
    fleet.drive(TO_S - 5.0)
    fleet.server.away = True
    fleet.drive(TO_S + 10.0)
    fleet.server.away = False
    fleet.drive(TO_S + 12.0)

    assert fleet.closed() == [False] * 3
    assert not fleet.server.places[ROUTE].stopped


def test_a_parked_route_is_parked_for_all() -> None:
    """A parked route is parked for all agents, with one reason and one call a minute.

    One person's resume opens it for all.
    """

    def unpaid(_now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
        return 0.05, snoozed("MONEY", 30.0)

    fleet = Fleet([unpaid] * 4)
    fleet.drive(200.0)

    assert all("is parked" in notice(agent.router, 200.0) for agent in fleet.agents)
    assert fleet.calls(10.0, 200.0) <= 4
    for agent in fleet.agents:
        agent.answer = well
    fleet.agents[0].router.resume(ROUTE, 200.0)
    fleet.drive(203.0)
    assert fleet.closed() == [False] * 4


def test_a_stop_that_other_agents_saw_is_logged_as_theirs(caplog: pytest.LogCaptureFixture) -> None:
    """An agent that saw no failure itself logs where the reason for a stop comes from."""
    caplog.set_level(logging.INFO)
    fleet = Fleet([broken, broken, well])
    fleet.drive(1.0)
    fleet.agents[0].router.resume("nothing", 1.0)
    quiet = routes()
    call(quiet, GOOD, 1.0)
    late = BoardSync(
        routes=quiet, board=fleet.server.board("late"), clock=fleet.clock, jitter=lambda: 0.5
    )
    place = fleet.server.places[ROUTE]
    place.generation, place.stopped, place.reason = 9, True, "SERVER: 503"

    asyncio.run(late.sync())

    assert quiet.closed(ROUTE, 1.0)
    assert caplog.records[-1].message.endswith("SERVER: 503 (as other agents saw)")


def test_unused_routes_are_not_reported() -> None:
    """Unused routes cost no round trip, except once at an agent's start.

    The agent must learn of a stop before its first call. A thousand models of yesterday cost
    nothing.
    """
    clock = HandClock(at_s=100.0)
    router, server = routes(), MemoryServer(clock.now_s)
    duty = BoardSync(routes=router, board=server.board("a"), clock=clock, jitter=lambda: 0.5)
    asyncio.run(duty.sync())
    assert list(server.places) == [ROUTE]

    server.flush()
    call(router, GOOD, 100.0, name="used")
    asyncio.run(duty.sync())
    assert list(server.places) == ["used"]

    clock.at_s = 200.0
    server.flush()
    asyncio.run(duty.sync())
    assert server.places == {}


def test_the_pause_is_shorter_when_the_turn_will_be_free() -> None:
    """The pause is half a second, or shorter if the turn will be free sooner.

    A fleet loses no time between two probes.
    """
    fleet = Fleet([away] * 2)
    assert fleet.duties[0]._pause_s() == pytest.approx(0.5)
    fleet.drive(20.0)
    members = [
        member
        for duty in fleet.duties
        for member in duty._peers.values()
        if member.waits_s(fleet.clock.at_s) is not None
    ]
    assert members

    for duty in fleet.duties:
        assert 0.05 <= duty._pause_s() <= 0.5


def test_a_missing_redis_is_logged_once_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """A Redis that is away at the start is logged before any task came; so is its return."""
    caplog.set_level(logging.INFO)
    clock = HandClock(at_s=100.0)
    server = MemoryServer(clock.now_s)
    duty = BoardSync(routes=routes(), board=server.board("a"), clock=clock, jitter=lambda: 0.5)
    server.away = True
    for _ in range(3):
        asyncio.run(duty.sync())
    server.away = False
    asyncio.run(duty.sync())

    assert [(record.levelname, record.message[:21]) for record in caplog.records] == [
        ("WARNING", "Redis does not answer"),
        ("INFO", "Redis answers again, "),
    ]


def test_an_agent_that_is_kept_from_the_turn_probes_alone() -> None:
    """If a foreign client holds the turn for ever, each agent probes alone.

    That happens after three intervals.
    """
    fleet = Fleet([away] * 2)
    fleet.drive(FROM_S + 2.0)
    while fleet.clock.at_s < TO_S + 30.0:
        fleet.server.places[ROUTE].turn = ("evil", fleet.clock.at_s + 4.0)
        fleet.drive(fleet.clock.at_s + STEP_S)

    assert 4 <= fleet.calls(FROM_S + 3.0, TO_S) <= 2 * 60 / 12 + 2
    assert fleet.closed() == [False] * 2
