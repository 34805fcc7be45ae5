"""What agents share about a route: the same rules in memory and in Redis."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from docllm.agent.routes.sharing.board import Board, BoardState, ProbeTurn, RouteReport, Stance
from docllm.agent.routes.sharing.redis_board import RedisBoard
from docllm.schemas.settings.config import Secret
from tests.servers import Redis
from tests.support.memory_board import MemoryServer

GROUP = "group"
SAY = RouteReport(
    route="route",
    ok=0,
    failed=0,
    generation=0,
    stance=Stance.GOES,
    parked=False,
    reason="",
    retry_s=0.0,
    turn=ProbeTurn.NONE,
    interval_s=3.0,
)
STOPPED = replace(SAY, stance=Stance.STOPPED, failed=10, reason="SERVER: 503 ü", retry_s=2.0)


class Meeting:
    """A board, and what a test does with it.

    `expire` ends a turn, `make_due` lets the wait for the next one end now.
    """

    def __init__(
        self,
        board: Callable[[str], Board],
        expire: Callable[[], object],
        make_due: Callable[[], object],
        flush: Callable[[], object],
    ) -> None:
        self._board = board
        self.expire = expire
        self.make_due = make_due
        self.flush = flush

    async def says(self, agent: str, report: RouteReport) -> BoardState:
        """Let an agent report on one route; return the answer."""
        (state,) = await self.say_all(agent, [report])
        return state

    async def say_all(self, agent: str, reports: Sequence[RouteReport]) -> list[BoardState]:
        """Let an agent report on several routes at once."""
        board = self._board(agent)
        try:
            return await board.sync(reports)
        finally:
            await board.close()


@pytest.fixture(params=["memory", "redis"])
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    """A board without memory of other tests."""
    if request.param == "memory":
        memory = MemoryServer(time.monotonic)
        yield Meeting(
            memory.board,
            lambda: setattr(memory.places["route"], "turn", ("", 0.0)),
            lambda: setattr(memory.places["route"], "retry_at_s", 0.0),
            memory.flush,
        )
        return
    server: Redis = request.getfixturevalue("redis_server")
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield Meeting(
            lambda agent: RedisBoard(url=Secret(server.url), group=GROUP, agent=agent),
            lambda: client.delete(f"docllm:{GROUP}:route:route:turn"),
            lambda: client.hset(f"docllm:{GROUP}:route:route:state", "retry_at", "0"),
            client.flushall,
        )


async def stopped_by_all(meeting: Meeting, **more: Any) -> int:
    """Let a and b fail, and stop a; return the generation."""
    await meeting.says("b", replace(SAY, failed=3))
    state = await meeting.says("a", replace(STOPPED, **more))
    assert state.stopped
    return state.generation


async def test_a_new_board_stops_no_agent(meeting: Meeting) -> None:
    """A board without memory lets everybody go."""
    assert await meeting.says("a", SAY) == BoardState(
        generation=0, stopped=False, parked=False, reason="", retry_s=0.0, turn=False
    )


async def test_all_stop_when_others_fail_too(meeting: Meeting) -> None:
    """Once another agent confirms a stop, all agents learn it, with its reason.

    They also learn the time of the first probe.
    """
    await meeting.says("b", replace(SAY, ok=1, failed=3))

    first = await meeting.says("a", replace(STOPPED, retry_s=60.0))
    second = await meeting.says("b", replace(SAY, interval_s=60.0))

    assert (first.generation, first.stopped, first.reason, first.parked) == (
        1,
        True,
        "SERVER: 503 ü",
        False,
    )
    assert (second.generation, second.stopped, second.reason) == (1, True, "SERVER: 503 ü")
    assert 30 < second.retry_s <= first.retry_s <= 60


@pytest.mark.parametrize("other", [replace(SAY, ok=10), replace(SAY, ok=2, failed=1), SAY])
async def test_one_that_fails_alone_stops_alone(meeting: Meeting, other: RouteReport) -> None:
    """While the others have successes, or nothing to report yet, the agent stops alone.

    The cause may be its own network or its own key.
    """
    await meeting.says("b", other)

    state = await meeting.says("a", STOPPED)

    assert (state.generation, state.stopped) == (0, False)


async def test_only_the_last_outcomes_of_each_agent_count(meeting: Meeting) -> None:
    """Only each agent's last outcomes count.

    So minutes of success do not hide an outage that begins.
    """
    await meeting.says("b", replace(SAY, ok=5000))
    assert not (await meeting.says("a", STOPPED)).stopped

    await meeting.says("b", replace(SAY, failed=2))

    assert (await meeting.says("a", replace(STOPPED, failed=0))).stopped


async def test_an_agent_without_others_speaks_for_all(meeting: Meeting) -> None:
    """Agents that start later learn of the stop."""
    assert (await meeting.says("a", STOPPED)).stopped
    assert (await meeting.says("b", SAY)).stopped


async def test_an_answer_restarts_the_route_for_all_agents(meeting: Meeting) -> None:
    """An agent with an answer reports it with the generation that it ends.

    A report on an older generation changes nothing.
    """
    generation = await stopped_by_all(meeting)
    old = await meeting.says("c", replace(SAY, stance=Stance.WELL, generation=generation - 1))
    assert old.stopped

    state = await meeting.says("b", replace(SAY, stance=Stance.WELL, generation=generation))

    assert (state.generation, state.stopped, state.reason) == (generation + 1, False, "")
    assert not (
        await meeting.says("a", replace(SAY, stance=Stance.JOINED, generation=generation))
    ).stopped


async def test_other_agents_show_a_parked_route_as_parked(meeting: Meeting) -> None:
    """The other agents then show what a person must do, and wait as long."""
    await stopped_by_all(meeting, parked=True, reason="MONEY: 402", retry_s=60.0, interval_s=60.0)

    state = await meeting.says("b", replace(SAY, interval_s=60.0))

    assert (state.parked, state.reason) == (True, "MONEY: 402")
    assert 30 < state.retry_s <= 60


async def test_one_agent_at_a_time_has_the_turn(meeting: Meeting) -> None:
    """A turn is given when it is due, and kept while its holder says so.

    It is free again an interval after it was given.
    """
    generation = await stopped_by_all(meeting, retry_s=60.0)
    want = replace(
        SAY,
        stance=Stance.JOINED,
        generation=generation,
        turn=ProbeTurn.WANT,
        interval_s=60.0,
        retry_s=60.0,
    )
    keep, leave = replace(want, turn=ProbeTurn.KEEP), replace(want, turn=ProbeTurn.LEAVE)
    assert not (await meeting.says("a", want)).turn

    meeting.make_due()
    assert (await meeting.says("a", want)).turn
    assert [(await meeting.says(agent, want)).turn for agent in "bb"] == [False, False]
    assert (await meeting.says("a", keep)).turn
    assert not (await meeting.says("a", leave)).turn
    state = await meeting.says("b", want)
    assert not state.turn
    assert 30 < state.retry_s <= 60

    meeting.make_due()
    assert [(await meeting.says(agent, want)).turn for agent in "ba"] == [True, False]


async def test_a_turn_is_not_revived(meeting: Meeting) -> None:
    """An expired turn is another agent's; its former holder can neither keep nor take it."""
    generation = await stopped_by_all(meeting, retry_s=0.0)
    want = replace(
        SAY, stance=Stance.JOINED, generation=generation, turn=ProbeTurn.WANT, interval_s=0.0
    )
    assert (await meeting.says("a", want)).turn
    meeting.expire()
    assert (await meeting.says("b", want)).turn

    assert not (await meeting.says("a", replace(want, turn=ProbeTurn.KEEP))).turn
    assert not (await meeting.says("a", replace(want, turn=ProbeTurn.LEAVE))).turn
    assert (await meeting.says("b", replace(want, turn=ProbeTurn.KEEP))).turn


async def test_no_agent_has_the_turn_while_all_take_calls(meeting: Meeting) -> None:
    """There is nothing to probe when all agents go."""
    generation = await stopped_by_all(meeting, retry_s=0.0)
    want = replace(SAY, stance=Stance.JOINED, generation=generation, turn=ProbeTurn.WANT)
    assert (await meeting.says("a", want)).turn
    await meeting.says("b", replace(SAY, stance=Stance.WELL, generation=generation))

    state = await meeting.says("a", replace(want, turn=ProbeTurn.KEEP))

    assert (state.stopped, state.turn) == (False, False)


async def test_a_board_that_lost_its_memory_learns_from_the_agents(meeting: Meeting) -> None:
    """The newest generation that an agent knows counts, and so does a stop in it."""
    generation = await stopped_by_all(meeting)
    meeting.flush()

    joined = replace(STOPPED, stance=Stance.JOINED, generation=generation, retry_s=60.0)
    state = await meeting.says("a", joined)
    assert (state.generation, state.stopped, state.reason) == (generation, True, "SERVER: 503 ü")
    assert 30 < state.retry_s <= 60

    newer = await meeting.says("b", replace(SAY, stance=Stance.GOES, generation=generation + 1))
    assert (newer.generation, newer.stopped) == (generation + 1, False)
    assert not (await meeting.says("a", joined)).stopped


async def test_routes_are_separate(meeting: Meeting) -> None:
    """Routes are separate, whatever their names are, also in one call."""
    names = ["x", "x:state", "ü {y}", "z\n"]

    answers = await meeting.say_all(
        "a", [replace(STOPPED, route=names[0]), *(replace(SAY, route=name) for name in names[1:])]
    )

    assert [state.stopped for state in answers] == [True, False, False, False]
    assert await meeting.say_all("a", []) == []
