"""What the agents that share an account are granted: the same rules in memory and in Redis."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import redis

from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import (
    NO_REFUND,
    Charge,
    DayCount,
    GrantStore,
    LimitKind,
    QuotaAnswer,
    QuotaRequest,
    WaitingCall,
)
from docllm.agent.quota.limit import NOTHING, Permit
from docllm.agent.quota.quotas import Quotas
from docllm.schemas.settings.quota import QuotaLimits
from tests.servers import Redis
from tests.support.clocked_quota import clocked, set_clock
from tests.support.lua_account import (
    AWAY_MS,
    CAPACITY_MS,
    CUT,
    DAY_MS,
    SEAT_MS,
    USE,
)
from tests.support.lua_spacing import LEAD_MS
from tests.support.memory_quota import MemoryQuotaServer

TASK = WaitingCall(charge=Charge(tokens_in=800, tokens_out=200))
START_MS = 20_000 * DAY_MS + 1000


@dataclass
class Meeting:
    """A store on a clock that the test moves, and the agents that use it."""

    store: Callable[[str], GrantStore]
    set_clock: Callable[[int], object]
    flush: Callable[[], object]
    now_ms: int = START_MS

    def __post_init__(self) -> None:
        self.sequences: dict[str, int] = {}
        self.set_clock(self.now_ms)

    def wait(self, ms: int) -> None:
        """Move the store's clock."""
        self.now_ms += ms
        self.set_clock(self.now_ms)

    async def say(self, agent: str, limits: QuotaLimits, asks: int = 0, **more: Any) -> QuotaAnswer:
        """Send an agent's next request with so many waiting calls."""
        self.sequences[agent] = self.sequences.get(agent, 0) + 1
        sequence = more.pop("sequence", self.sequences[agent])
        task = more.pop("task", TASK)
        request = QuotaRequest(
            key="key", limits=limits, sequence=sequence, waiting=(task,) * asks, **more
        )
        (answer,) = await self.send(agent, [request])
        return answer

    async def send(self, agent: str, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        store = self.store(agent)
        try:
            return await store.exchange(requests)
        finally:
            await store.close()


def in_memory() -> Meeting:
    clock = [0.0]
    server = MemoryQuotaServer(lambda: clock[0])
    return Meeting(server.store, lambda ms: clock.__setitem__(0, ms / 1000), server.flush)


def in_redis(url: str) -> Iterator[Meeting]:
    with redis.Redis.from_url(url) as client:
        client.flushall()

        def flush() -> None:
            client.delete(*client.keys("docllm:quota:*"))

        yield Meeting(lambda agent: clocked(url, agent), partial(set_clock, client), flush)


@pytest.fixture(params=["memory", "redis"])
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    """A store without memory of other tests."""
    if request.param == "memory":
        yield in_memory()
    else:
        server: Redis = request.getfixturevalue("redis_server")
        yield from in_redis(server.url)


RPM = QuotaLimits(rpm=1200)  # 20 a second
TPM = QuotaLimits(tpm=1_200_000)  # 20 tasks a second
MINUTE = QuotaLimits(tpm=60_000)
LARGE = WaitingCall(charge=Charge(tokens_in=24_000, tokens_out=0))


@pytest.mark.parametrize(("limits", "name", "most"), [(RPM, "rpm", 9), (TPM, "tpm", 10)])
async def test_an_account_begins_empty_and_fills_with_time(
    meeting: Meeting, limits: QuotaLimits, name: str, most: int
) -> None:
    """Nothing is granted at once, and after half a second half a second of the rate.

    The last task may leave a debt of tokens.
    """
    first = await meeting.say("a", limits, 30)
    assert (sum(first.granted), first.binding, first.agents, first.seats) == (0, name, 1, None)

    meeting.wait(500)
    answer = await meeting.say("a", limits, 30)

    assert answer.granted == (True,) * most + (False,) * (30 - most)
    assert (answer.binding, answer.paused_s, answer.accepted_share) == (name, 0.0, 1.0)


async def test_an_idle_account_saves_up_little(meeting: Meeting) -> None:
    """After an idle hour, less than a second's rate is granted at once."""
    await meeting.say("a", RPM)
    meeting.wait(3_600_000)

    assert sum((await meeting.say("a", RPM, 64)).granted) == 20 * CAPACITY_MS // 1000


async def test_after_a_refusal_calls_begin_one_after_another(meeting: Meeting) -> None:
    """A server may refuse two calls at once, though both are within its limit."""
    every_s = 60 / 1200 / USE / CUT
    await meeting.say("a", RPM, refused=1)
    meeting.wait(430)
    first = await meeting.say("a", RPM, 5)
    second = await meeting.say("b", RPM, 5)
    again = await meeting.say("b", RPM, 5, sequence=meeting.sequences["b"])
    meeting.wait(3_600_000)
    later = await meeting.say("a", RPM, 64)

    assert [sum(answer.granted) for answer in (first, second, later)] == [5, 2, 16]
    assert first.starts_in_s == later.starts_in_s == later.starts_every_s == 0.0
    assert second.starts_in_s == again.starts_in_s == pytest.approx(5 * every_s, abs=0.001)
    assert first.starts_every_s == second.starts_every_s == pytest.approx(every_s)


async def test_a_start_is_less_than_a_second_away(meeting: Meeting) -> None:
    """Grants that are given back, or a clock that was set back, delay no call for long."""
    await meeting.say("a", RPM, refused=1)
    for _ in range(10):
        meeting.wait(500)
        answer = await meeting.say("a", RPM, 64, refund=Charge(requests=10))
        assert answer.starts_in_s <= LEAD_MS / 1000
    meeting.wait(-3_600_000)
    assert (await meeting.say("a", RPM, 1)).starts_in_s <= LEAD_MS / 1000


@pytest.mark.parametrize("limits", [TPM, replace(RPM, in_flight=30)])
async def test_other_limits_space_no_calls(meeting: Meeting, limits: QuotaLimits) -> None:
    """Tokens are counted over longer times, and a call that waits for its start holds its seat."""
    await meeting.say("a", limits, refused=1)
    for _ in range(3):
        meeting.wait(500)
        answer = await meeting.say("a", limits, 5)

    assert (sum(answer.granted), answer.starts_in_s, answer.starts_every_s) == (5, 0.0, 0.0)


async def test_eight_agents_use_a_limit_and_no_more(meeting: Meeting) -> None:
    """Over a minute they get what the limit allows, in equal parts."""
    granted = dict.fromkeys("abcdefgh", 0)
    for step in range(120):
        for agent in granted:
            answer = await meeting.say(agent, RPM, 10)
            granted[agent] += sum(answer.granted) if step >= 0 else 0
            meeting.wait(62)
    fair = USE * 1200 * 120 * 8 * 0.062 / 60 / 8

    assert sum(granted.values()) <= 1200
    assert all(0.9 * fair <= count <= 1.1 * fair for count in granted.values())


async def test_a_repeated_request_gets_the_same_answer(meeting: Meeting) -> None:
    """An answer that was lost on the way is not granted twice."""
    await meeting.say("a", RPM)
    meeting.wait(500)
    first = await meeting.say("a", RPM, 5, sequence=2)
    again = await meeting.say("a", RPM, 5, sequence=2, refund=Charge(requests=-100))
    third = await meeting.say("a", RPM, 9, sequence=3)

    assert first.granted == again.granted == (True,) * 5
    assert third.granted == (True,) * 4 + (False,) * 5


async def test_costs_are_settled(meeting: Meeting) -> None:
    """What a call did not need is granted anew; what it cost beyond its grant is a debt."""
    await meeting.say("a", TPM)
    meeting.wait(500)
    assert sum((await meeting.say("a", TPM, 9)).granted) == 9

    more = await meeting.say(
        "b", TPM, 9, refund=replace(NO_REFUND, tokens_in=3000, tokens_out=1000)
    )
    assert sum(more.granted) == 5

    debt = await meeting.say("a", TPM, refund=replace(NO_REFUND, tokens_in=-10_000))
    assert debt.granted == ()
    meeting.wait(300)
    assert sum((await meeting.say("a", TPM, 9)).granted) == 0
    meeting.wait(300)
    assert sum((await meeting.say("a", TPM, 9)).granted) > 0


async def test_what_is_given_back_late_is_forgotten(meeting: Meeting) -> None:
    """A refund that nobody uses for a while is no burst later."""
    await meeting.say("a", TPM, refund=replace(NO_REFUND, tokens_in=40_000))
    assert sum((await meeting.say("a", TPM, 9)).granted) == 9
    meeting.wait(3_000)

    assert sum((await meeting.say("a", TPM, 64)).granted) == 16


async def test_a_task_beyond_the_capacity_runs_and_leaves_a_debt(meeting: Meeting) -> None:
    """A large task would wait for ever beside small ones that empty the level."""
    large = WaitingCall(charge=Charge(tokens_in=100_000, tokens_out=0))
    await meeting.say("a", TPM)
    meeting.wait(100)
    assert sum((await meeting.say("a", TPM, 1, task=large)).granted) == 1
    meeting.wait(4_500)
    assert sum((await meeting.say("b", TPM, 9)).granted) == 0
    meeting.wait(900)

    assert sum((await meeting.say("b", TPM, 9)).granted) > 0


async def test_the_scarcest_limit_binds(meeting: Meeting) -> None:
    """Prompts and answers have limits of their own."""
    limits = QuotaLimits(rpm=6000, itpm=6_000_000, otpm=60_000)
    await meeting.say("a", limits)
    meeting.wait(500)

    answer = await meeting.say("a", limits, 20)

    assert (sum(answer.granted), answer.binding) == (3, "otpm")


async def granted_at(meeting: Meeting, seconds: int, task: WaitingCall = LARGE) -> list[int]:
    """Return when such calls of `a` are granted, while `b` always asks for small ones."""
    granted = []
    for second in range(seconds):
        meeting.wait(500)
        if sum((await meeting.say("a", MINUTE, 1, task=task)).granted):
            granted.append(second)
        meeting.wait(500)
        await meeting.say("b", MINUTE, 9)
    return granted


async def test_a_refusal_in_a_full_minute_makes_large_calls_wait_for_room(meeting: Meeting) -> None:
    """Before it, a large call begins as soon as there is room for a small one."""
    await meeting.say("a", MINUTE)
    first = await granted_at(meeting, 100)
    await meeting.say("a", MINUTE, refused=1)
    begun = []
    for second in range(180):
        meeting.wait(1000)
        begun += [second] * sum((await meeting.say("a", MINUTE, 1, task=LARGE)).granted)

    assert any(later - earlier <= 60 for earlier, later in zip(first, first[2:], strict=False))
    pairs = zip(begun, begun[2:], strict=False)
    assert len(begun) >= 5
    assert min(later - earlier for earlier, later in pairs) > 60


async def test_a_large_call_gets_room_beside_small_ones(meeting: Meeting) -> None:
    """Small calls of another agent leave it the room for which it waits."""
    await meeting.say("a", MINUTE)
    await granted_at(meeting, 60)
    await meeting.say("a", MINUTE, refused=1)

    assert len(await granted_at(meeting, 150)) >= 2


async def test_a_refusal_lowers_the_scale_and_pauses_all(meeting: Meeting) -> None:
    """All wait for half of Retry-After, at most 2.5 s; the accepted share grows back with time."""
    await meeting.say("b", RPM)
    meeting.wait(500)
    refused = await meeting.say("a", RPM, 5, refused=3, retry_after_s=60.0)
    assert (sum(refused.granted), refused.accepted_share, refused.paused_s) == (0, 0.92, 2.5)
    again = await meeting.say("a", RPM, 5, refused=3)
    assert again.accepted_share == 0.92

    for _ in range(4):
        meeting.wait(500)
        assert sum((await meeting.say("b", RPM, 5)).granted) == 0
    meeting.wait(1000)
    answer = await meeting.say("b", RPM, 5)

    assert (sum(answer.granted), answer.paused_s) == (5, 0.0)
    for _ in range(12):
        meeting.wait(1000)
        answer = await meeting.say("b", RPM, remaining=0.9)
    assert answer.accepted_share == 1.0


async def acquainted(meeting: Meeting, limits: QuotaLimits) -> None:
    """Let the store learn that no other agent has calls."""
    for _ in range(2):
        assert (await meeting.say("a", limits)).seats == 0
        meeting.wait(500)


async def test_seats_are_shared_and_follow_demand(meeting: Meeting) -> None:
    """One agent has all; a second one gets half as calls end, and all once the first is gone."""
    limits = QuotaLimits(in_flight=10)
    await acquainted(meeting, limits)
    assert (await meeting.say("a", limits, 30)).seats == 10
    second = await meeting.say("b", limits, 30)
    assert (second.seats, second.binding) == (0, "in_flight")
    assert (await meeting.say("a", limits, 30, running=10)).seats == 5
    assert (await meeting.say("b", limits, 30)).seats == 0  # the calls of `a` still run
    assert (await meeting.say("a", limits, 30, running=5)).seats == 5
    assert (await meeting.say("b", limits, 30)).seats == 5

    for _ in range(AWAY_MS // 1000):
        meeting.wait(1000)
        await meeting.say("b", limits, 30, running=5)

    assert (await meeting.say("b", limits, 30, running=5)).seats == 10


async def test_more_agents_than_seats_take_turns(meeting: Meeting) -> None:
    """An agent keeps its seat for a while, and then it is free for every agent."""
    limits = QuotaLimits(in_flight=1)
    await acquainted(meeting, limits)
    assert (await meeting.say("a", limits, 5)).seats == 1
    assert (await meeting.say("b", limits, 5)).seats == 0
    assert (await meeting.say("a", limits, 5, running=1)).seats == 1
    assert (await meeting.say("a", limits, 5)).seats == 1
    for _ in range(SEAT_MS // 500):
        meeting.wait(500)
        seats = (await meeting.say("a", limits, 5, running=1)).seats
        assert seats is not None
        running = int(seats > 0)
        if not running:
            break
        assert (await meeting.say("b", limits, 5)).seats == 0
    assert (await meeting.say("b", limits, 5)).seats == 0  # the call of `a` still runs
    assert (await meeting.say("a", limits, 5)).seats == 0

    assert (await meeting.say("b", limits, 5)).seats == 1
    assert (await meeting.say("a", limits, 5)).seats == 0


async def test_agents_give_up_seats_when_the_limit_is_lowered(meeting: Meeting) -> None:
    """Calls that run go on; only one agent keeps a seat for the next, though all had some."""
    await acquainted(meeting, QuotaLimits(in_flight=10))
    running = {"a": 0, "b": 0, "c": 0}
    for limit in (10, 10, 10, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1):
        meeting.wait(500)
        for agent, count in running.items():
            say = partial(meeting.say, agent, QuotaLimits(in_flight=limit), 9, running=count)
            running[agent] = (await say()).seats or 0

    assert sum(running.values()) <= 1


async def test_an_agent_without_a_limit_leaves_the_limits_of_others_alone(meeting: Meeting) -> None:
    """Settings change in one agent after the other, and groups may set other limits."""
    slow, granted = QuotaLimits(rpm=60), 0
    await meeting.say("a", slow)
    for _ in range(60):
        for _ in range(3):
            meeting.wait(500)
            await meeting.say("b", QuotaLimits(in_flight=5))
        meeting.wait(500)
        granted += sum((await meeting.say("a", slow, 9)).granted)

    assert 57 <= granted <= 60


async def test_an_agent_without_tasks_gives_its_seat_back_at_once(meeting: Meeting) -> None:
    """An idle agent does not keep its seat for `SEAT_MS`."""
    limits = QuotaLimits(in_flight=1)
    await acquainted(meeting, limits)
    assert (await meeting.say("a", limits, 5)).seats == 1
    await meeting.say("b", limits, 5)
    await meeting.say("a", limits)

    assert (await meeting.say("b", limits, 5)).seats == 1


async def test_calls_that_end_soon_are_granted_for_beforehand(meeting: Meeting) -> None:
    """Seats would be empty until the next request; grants in hand are for them, too."""
    limits = QuotaLimits(rpm=12_000, in_flight=10)
    await acquainted(meeting, limits)
    meeting.wait(50)
    say = partial(meeting.say, "a", limits, 30)
    assert sum((await say()).granted) == 10
    assert sum((await say(running=10, ends=0)).granted) == 0
    assert sum((await say(running=10, ends=6)).granted) == 6
    assert sum((await say(running=10, in_hand=6, ends=6)).granted) == 0

    meeting.wait(2000)
    assert sum((await say(running=10)).granted) == 1  # nobody else needs it


async def test_a_day_has_its_calls(meeting: Meeting) -> None:
    """The count ends with the day, and survives a store that forgets by the agents' own count."""
    limits, today = QuotaLimits(rpd=10), START_MS // DAY_MS
    await meeting.say("a", limits)
    meeting.wait(1_000)
    assert sum((await meeting.say("a", limits, 7)).granted) == 7
    assert sum((await meeting.say("a", limits, 7, refund=Charge(requests=2))).granted) == 5
    meeting.flush()
    recorded = DayCount(day=today, calls=8)
    await meeting.say("b", limits, used_today=recorded)
    meeting.wait(1_000)
    answer = await meeting.say("b", limits, 7, used_today=recorded)
    assert (sum(answer.granted), answer.binding) == (2, "rpd")

    meeting.wait(DAY_MS)
    yesterday = DayCount(day=today, calls=10)
    await meeting.say("b", limits, used_today=yesterday)
    meeting.wait(1_000)
    assert sum((await meeting.say("b", limits, 7, used_today=yesterday)).granted) == 7


async def test_a_recount_of_ended_calls_leaves_room_for_running_calls(meeting: Meeting) -> None:
    """The agents' own records hold ended calls only."""
    limits, today = QuotaLimits(rpd=10), DayCount(day=START_MS // DAY_MS, calls=5)
    await meeting.say("a", limits)
    meeting.wait(1_000)

    answer = await meeting.say("a", limits, 7, running=3, used_today=today)

    assert (sum(answer.granted), answer.binding) == (2, "rpd")


async def test_a_day_survives_a_store_that_forgets_it(meeting: Meeting) -> None:
    """The store hears from the agents what it told them last.

    It believes them only after a loss, when it grants nothing for a second: what one agent gave
    back, another was told of as used.
    """
    limits = QuotaLimits(rpd=10)
    await meeting.say("a", limits)
    meeting.wait(1_000)
    told = (await meeting.say("a", limits, 4)).today
    assert told == DayCount(day=START_MS // DAY_MS, calls=4)
    assert sum((await meeting.say("b", limits, 4)).granted) == 4
    meeting.flush()

    assert sum((await meeting.say("a", limits, 9, told_today=told)).granted) == 0
    await meeting.say("b", limits, told_today=replace(told, calls=8))
    meeting.wait(1_000)
    answer = await meeting.say("a", limits, 9)
    assert (sum(answer.granted), answer.binding) == (2, "rpd")

    back = await meeting.say(
        "b", limits, 9, refund=Charge(requests=1), told_today=replace(told, calls=10)
    )
    assert sum(back.granted) == 1


async def test_calls_of_the_shares_count_once(meeting: Meeting) -> None:
    """When agents return together, each tells its own calls, and the records hold some of them.

    An agent that returns later tells what the records leave out.
    """
    limits, today = QuotaLimits(rpd=100), START_MS // DAY_MS
    await meeting.say("a", limits)
    meeting.wait(1_000)
    assert sum((await meeting.say("a", limits, 10)).granted) == 10
    meeting.wait(10_000)
    recorded = DayCount(day=today, calls=35)

    for agent in ("a", "b"):
        await meeting.say(agent, limits, uncounted=20, unrecorded=5, used_today=recorded)
    meeting.wait(1_000)
    answer = await meeting.say("c", limits, uncounted=30, unrecorded=7, used_today=recorded)

    assert answer.today == DayCount(day=today, calls=10 + 2 * 20 + 7)


async def test_a_store_that_forgot_begins_empty(meeting: Meeting) -> None:
    """Nothing is granted at once, and no seat is leased before all agents told of their calls."""
    limits = QuotaLimits(rpm=1200, in_flight=10)
    await acquainted(meeting, limits)
    await meeting.say("a", limits, 30, running=8)
    meeting.flush()

    forgot = await meeting.say("b", limits, 30)
    assert (sum(forgot.granted), forgot.seats) == (0, 0)
    meeting.wait(500)
    assert (await meeting.say("a", limits, 30, running=8)).seats == 5
    meeting.wait(500)
    assert (await meeting.say("b", limits, 30)).seats == 2


async def test_an_answer_shows_whether_the_store_has_forgotten(meeting: Meeting) -> None:
    """The memory's beginning is another one after a loss only."""
    first = (await meeting.say("a", RPM)).began_ms
    meeting.wait(60_000)
    later = (await meeting.say("b", RPM)).began_ms
    meeting.flush()

    assert first == later == START_MS
    assert (await meeting.say("a", RPM)).began_ms == START_MS + 60_000


@pytest.mark.parametrize("part", ["account", "agents", "seen"])
async def test_a_part_that_is_evicted_costs_the_rest(part: str, redis_server: Redis) -> None:
    """Else the calls of others would be unknown, or a dead agent would keep its seats."""
    limits = QuotaLimits(in_flight=10)
    for meeting in in_redis(redis_server.url):
        await acquainted(meeting, limits)
        await meeting.say("a", limits, 30)
        await meeting.say("a", limits, 30, running=10)
        with redis.Redis.from_url(redis_server.url) as client:
            for step in range(40):
                meeting.wait(500)
                if step % 3 == 0:
                    assert client.delete(f"docllm:quota:{{key}}:{part}")
                assert (await meeting.say("b", limits, 30)).seats == 0
                await meeting.say("a", limits, running=10)
            client.delete(f"docllm:quota:{{key}}:{part}")
        for _ in range(14):  # `a` is dead
            meeting.wait(500)
            seats = (await meeting.say("b", limits, 30)).seats

        assert seats == 10


async def test_after_a_gap_the_store_learns_of_calls_first(meeting: Meeting) -> None:
    """An old dump knows fewer calls than there are, and so does a store that was away."""
    limits = QuotaLimits(in_flight=10)
    await acquainted(meeting, limits)
    await meeting.say("a", limits)
    meeting.wait(3_000)

    assert (await meeting.say("b", limits, 30)).seats == 0
    meeting.wait(500)
    assert (await meeting.say("a", limits, 30, running=8)).seats == 5
    meeting.wait(500)
    assert (await meeting.say("b", limits, 30)).seats == 2


async def test_a_clock_that_is_set_back_or_forth_grants_no_more(meeting: Meeting) -> None:
    """The agents stay known, and at most the capacity is granted."""
    limits = QuotaLimits(rpm=1200, in_flight=10)
    await meeting.say("b", limits, 30)
    meeting.wait(500)
    await meeting.say("a", limits, 30)
    meeting.wait(-3_600_000)
    assert sum((await meeting.say("a", limits, 30)).granted) == 0
    meeting.wait(500)
    assert (await meeting.say("a", limits, 30)).agents == 2
    meeting.wait(3_600_000)

    answer = await meeting.say("a", limits, 30)

    assert answer.agents == 2
    assert sum(answer.granted) <= 16


async def test_accounts_are_separate(meeting: Meeting) -> None:
    """An agent asks about several accounts at once."""
    requests = [
        QuotaRequest(key=key, limits=QuotaLimits(rpm=1200), sequence=1, waiting=(TASK,) * 3)
        for key in ("x", "y")
    ]
    await meeting.send("a", requests[:1])
    meeting.wait(500)
    answers = await meeting.send("a", [replace(request, sequence=2) for request in requests])

    assert [sum(answer.granted) for answer in answers] == [3, 0]
    assert await meeting.send("a", []) == []


def drawn(rng: random.Random, sequence: int) -> QuotaRequest:
    """Return a random request."""
    draw = rng.randrange
    limits: dict[str, Any] = {
        "rpm": draw(30, 3000),
        "tpm": draw(10_000, 3_000_000),
        "itpm": draw(10_000, 3_000_000),
        "otpm": draw(5_000, 300_000),
        "rpd": draw(1, 500),
        "in_flight": draw(1, 40),
    }
    chosen = rng.sample(sorted(limits), draw(1, 6))
    return QuotaRequest(
        key="key",
        limits=QuotaLimits(**{name: limits[name] for name in chosen}),
        sequence=sequence,
        running=draw(20),
        in_hand=draw(4),
        ends=draw(6),
        waiting=tuple(
            WaitingCall(charge=Charge(tokens_in=draw(5000), tokens_out=draw(2000)))
            for _ in range(draw(12))
        ),
        refund=Charge(
            requests=draw(-2, 3), tokens_in=draw(-2000, 4000), tokens_out=draw(-200, 400)
        ),
        refused=draw(3) if rng.random() < 0.1 else 0,
        retry_after_s=rng.random() * 8,
        remaining=rng.choice([None, 0.2, 0.8]),
        used_today=_draw_day(rng),
        told_today=_draw_day(rng),
        uncounted=draw(9),
        unrecorded=draw(5),
    )


def _draw_day(rng: random.Random) -> DayCount | None:
    day = DayCount(day=START_MS // DAY_MS + rng.randrange(2), calls=rng.randrange(300))
    return rng.choice([None, day])


@pytest.mark.parametrize("seed", [*range(8), 51])
async def test_both_stores_answer_alike(seed: int, redis_server: Redis) -> None:
    """Whatever agents say and clocks do, Redis and memory give the same answers."""
    rng = random.Random(seed)  # noqa: S311 - a test's own
    memory = in_memory()
    for other in in_redis(redis_server.url):
        for _ in range(250):
            agent = rng.choice("abcdef")
            again = rng.random() < 0.05
            sequence = memory.sequences.get(agent, 0) + (0 if again else 1)
            memory.sequences[agent] = sequence
            request = drawn(rng, sequence)
            step_ms = rng.choice([0, 1, 62, 500, 500, 1500, 7000, -3000])
            for one in (memory, other):
                one.wait(step_ms)
            answers = [(await one.send(agent, [request]))[0] for one in (memory, other)]
            assert answers[0] == answers[1], request


async def test_uses_of_a_limit_of_the_group_stay_within_it(meeting: Meeting) -> None:
    """Two agents use all of it, and no more, though nothing that they use costs tokens."""
    name = (LimitKind.NAMED, "crm")
    agents = [Quotas(lambda _name: ("crm", QuotaLimits(in_flight=4, rpm=120))) for _ in range(2)]
    running: list[tuple[int, Quotas, Permit]] = []
    starts_ms: list[int] = []
    use = WaitingCall(charge=NOTHING, limits=(name,))
    for _ in range(2 * 70):
        now_s = meeting.now_ms / 1000
        for number, quotas in enumerate(agents):
            quotas.set_waiting("crm", (), now_s, later=[use] * 9)
            asking = list(quotas.with_news(now_s))
            requests = [quota.next_request(now_s) for quota in asking]
            answers = await meeting.send(str(number), requests)
            for quota, request, answer in zip(asking, requests, answers, strict=True):
                quota.apply_answer(request, answer, now_s, now_s)
            while permit := quotas.permit([name], NOTHING, CallSize(), now_s):
                running.append((meeting.now_ms + 1000, quotas, permit))
                starts_ms.append(meeting.now_ms - START_MS)
        assert len(running) <= 4
        meeting.wait(500)
        for ends_ms, quotas, permit in list(running):
            if ends_ms <= meeting.now_ms:
                running.remove((ends_ms, quotas, permit))
                quotas.note_ended(permit, NOTHING)
    for begin_ms in range(0, 70_000, 10_000):
        in_minute = sum(begin_ms <= at_ms < begin_ms + 60_000 for at_ms in starts_ms)
        assert in_minute <= 120
    assert sum(at_ms < 60_000 for at_ms in starts_ms) > 100
