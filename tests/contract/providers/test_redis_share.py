"""The board in Redis when Redis is frozen, killed, emptied, or not Redis at all.

Redis may also have lost the script.
"""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from docllm.agent.quota.grants import RedisAwayError
from docllm.agent.routes import Router
from docllm.agent.routes.sharing.board import ProbeTurn, Stance
from docllm.agent.routes.sharing.redis_board import KEEP_S, RedisBoard
from docllm.agent.routes.sharing.sync import BoardSync
from docllm.producer.checks.checklist import Checks, outcome
from docllm.producer.checks.redis_rights import ENOUGH, NAMES, refused_commands
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import AgentConfig, Secret
from docllm.schemas.settings.sources import load_config
from tests.contract.providers.test_board import SAY
from tests.servers import Redis
from tests.servers.process import free_port
from tests.support.routes import GOOD, ROUTE, call, failed, routes

STOPPED = replace(SAY, failed=3, stance=Stance.STOPPED)
WANT = replace(SAY, generation=1, stance=Stance.JOINED, turn=ProbeTurn.WANT)
PATIENCE_S = 30.0  # 2 s in all, many times that on a busy machine


def board(url: str, agent: str = "a") -> RedisBoard:
    return RedisBoard(url=Secret(url), group="group", agent=agent)


@pytest.fixture
def server(redis_server: Redis) -> Iterator[Redis]:
    """An empty Redis, which is restarted afterwards."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    yield redis_server
    redis_server.restart()


FEW = "+ping +hello +info +eval +evalsha +script|load +script|exists +get +set +del +expire"


@pytest.fixture
def user(server: Redis) -> Iterator[Callable[[str], str]]:
    """Return a function that gives a user these rights, and returns the user's address."""
    with redis.Redis.from_url(server.url) as admin:

        def rights(rules: str) -> str:
            admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", *rules.split())
            return server.url.replace("redis://", "redis://app:pw@")

        yield rights
        admin.execute_command("ACL", "DELUSER", "app")


async def test_the_documented_rights_are_enough(user: Callable[[str], str], server: Redis) -> None:
    """With the documented rights the script runs, and `check` finds nothing refused.

    `check` leaves no key behind.
    """
    url = user(ENOUGH)
    share = board(url)

    assert (await share.sync([SAY]))[0].generation == 0
    await share.close()

    async with AsyncRedis.from_url(url) as client:
        assert await refused_commands(client, "group") == ""
    with redis.Redis.from_url(server.url) as admin:
        assert list(admin.scan_iter("docllm:group:check:*")) == []


async def test_a_command_that_is_refused_is_named(user: Callable[[str], str]) -> None:
    """The script's error does not name the command.

    So each command is tried by itself, for the log and for `check`.
    """
    url = user(f"~docllm:* {FEW}")
    share = board(url)

    with pytest.raises(RedisAwayError, match=r"refuses TIME, PTTL, PEXPIRE, HSET, HGET, .* to its"):
        await share.sync([SAY])

    user("~docllm:* +@all -hget")
    with pytest.raises(RedisAwayError, match=r"refuses HGET to its user; run: .* check"):
        await share.sync([SAY])


async def test_keys_that_are_refused_are_named(user: Callable[[str], str]) -> None:
    """A user with rights to other keys may send every command, but may use none of our keys."""
    with pytest.raises(RedisAwayError, match=r"refuses the keys docllm:\* to its user"):
        await board(user("~others:* +@all")).sync([SAY])


async def test_check_names_the_commands_that_redis_refuses(
    user: Callable[[str], str], tmp_path: Path
) -> None:
    """A bug once let `check` pass with these rights, although agents could not use Redis."""
    url = user(f"~docllm:* {FEW}")
    config = load_config(flags={}, environ={"DOCLLM_REDIS_URL": url}, cwd=tmp_path)
    (test,) = (check for check in Checks(config, group="group").all() if check.name == "redis")

    code, word, message = await outcome(test)

    assert (code, word) == (0, "WARNING")
    assert "HGET" in message
    assert f"ACL SETUSER NAME {ENOUGH}" in message


def test_every_command_of_the_script_is_tried() -> None:
    """A command that is added to the script must be added to the list that `check` tries."""
    script = files("docllm.agent.routes.sharing").joinpath("board.lua").read_text("utf-8")
    commands = set(re.findall(r"redis\.call\('(\w+)'", script))

    assert {"HGET", "SET"} <= commands <= NAMES


async def away_s(share: RedisBoard) -> float:
    """Return how long it takes to learn that the board does not answer."""
    began_s = time.monotonic()
    with pytest.raises(RedisAwayError):
        await share.sync([SAY])
    return time.monotonic() - began_s


async def test_a_frozen_redis_delays_an_agent_only_briefly(server: Redis) -> None:
    """A frozen Redis accepts connections and answers nothing.

    A new and an old connection both give up, and the next one works.
    """
    old, new = board(server.url), board(server.url)
    await old.sync([SAY])
    server.freeze()
    assert max(await away_s(old), await away_s(new), await away_s(old)) < PATIENCE_S

    server.thaw()

    for share in (old, new):
        assert (await share.sync([SAY]))[0].generation == 0
        await share.close()


async def test_an_address_that_asks_for_texts_gives_them(server: Redis) -> None:
    """With `decode_responses` in the address Redis returns text instead of bytes.

    The board works the same.
    """
    url = f"{server.url}?decode_responses=True"
    tell, ask = board(url), board(url, "b")

    await tell.sync([replace(SAY, stance=Stance.STOPPED, failed=10, reason="SERVER: 503")])

    assert [(state.stopped, state.reason) for state in await ask.sync([SAY])] == [
        (True, "SERVER: 503")
    ]
    for share in (tell, ask):
        await share.close()


async def test_a_restarted_redis_is_found_again(server: Redis) -> None:
    """A dead connection causes one failure; the script is loaded again automatically."""
    share = board(server.url)
    await share.sync([SAY])
    server.kill()
    assert await away_s(share) < PATIENCE_S

    server.start()
    assert (await share.sync([SAY]))[0].generation == 0
    with redis.Redis.from_url(server.url) as client:
        client.script_flush()
    assert (await share.sync([SAY]))[0].generation == 0
    await share.close()


@pytest.mark.parametrize(
    "part",
    [
        "redis://127.0.0.1:{port}/0",
        "redis://127.0.0.1:{port}/0?pasword=hunter2",
        "redis://:hunter2@127.0.0.1:{port}/x",
    ],
)
async def test_a_dead_address_is_reported_without_secrets(part: str) -> None:
    """A dead address and an unknown option are answers like any other."""
    with pytest.raises(RedisAwayError) as away:
        await board(part.format(port=free_port())).sync([SAY])

    assert "hunter2" not in str(away.value)


async def test_a_server_that_is_not_redis_is_reported() -> None:
    """The server accepts the connection, and sends nothing that a client could read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        share = board(f"redis://127.0.0.1:{listener.getsockname()[1]}/0")
        assert await away_s(share) < PATIENCE_S


async def test_keys_have_names_and_an_end(server: Redis) -> None:
    """The keys name their owner, and expire an hour after the last agent."""
    share = board(server.url)
    await share.sync([replace(STOPPED, route="m/1", reason="SERVER")])
    await share.sync([replace(WANT, route="m/1", reason="SERVER")])
    await share.close()

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        ends = {key: client.ttl(key) for key in client.scan_iter()}
    assert sorted(ends) == ["docllm:group:route:m/1:" + part for part in ("seen", "state", "turn")]
    assert [
        KEEP_S - 5 <= ends["docllm:group:route:m/1:" + part] <= KEEP_S for part in ("seen", "state")
    ] == [True, True]
    assert 0 < ends["docllm:group:route:m/1:turn"] <= 5


async def test_a_clock_that_was_set_back_delays_no_probe(server: Redis) -> None:
    """A time that lies hours ahead is brought back to an interval from now."""
    share = board(server.url)
    await share.sync([replace(STOPPED, retry_s=1.0)])
    with redis.Redis.from_url(server.url) as client:
        client.hset(
            "docllm:group:route:route:state", "retry_at", int((time.time() + 36_000) * 1000)
        )

    (state,) = await share.sync([WANT])

    assert state.retry_s <= 3.0
    await share.close()


@pytest.mark.parametrize("expiry_ms", [None, 3_600_000])
async def test_a_turn_that_no_agent_took_is_taken_away(
    server: Redis, expiry_ms: int | None
) -> None:
    """A turn that never expires, or expires too late, would stop the route for good."""
    share = board(server.url)
    (state,) = await share.sync([replace(SAY, stance=Stance.STOPPED, failed=10, reason="SERVER")])
    with redis.Redis.from_url(server.url) as client:
        client.set("docllm:group:route:route:turn", "evil", px=expiry_ms)

    want = replace(SAY, stance=Stance.JOINED, generation=state.generation, turn=ProbeTurn.WANT)
    assert [state.turn for state in await share.sync([want])] == [True]
    await share.close()


async def test_a_reason_from_redis_is_fit_to_be_shown(server: Redis) -> None:
    """Anybody may have written the reason.

    It is shown on one line, printable, and no longer than agents make it.
    """
    share = board(server.url)
    with redis.Redis.from_url(server.url) as client:
        reason = "EVIL\x1b[31m\r\n2026-11-24 INFO FORGED \u202e" + "x" * 1000
        client.hset(
            "docllm:group:route:route:state",
            mapping={"generation": 1, "stopped": 1, "parked": 0, "reason": reason},
        )

    (state,) = await share.sync([SAY])
    assert state.reason.isprintable()
    assert state.reason.startswith("EVIL [31m 2026-11-24 INFO FORGED")
    assert len(state.reason) <= 300
    await share.close()


async def test_two_foreign_keys_do_not_stop_a_route_for_good(server: Redis) -> None:
    """The route is tried within two intervals, and takes calls again after an answer."""
    table, share, clock = (
        routes(agent=AgentConfig(slots=64, park_probe_s=0.5)),
        board(server.url),
        SystemClock(),
    )
    sharing = BoardSync(routes=table, board=share, clock=clock, jitter=lambda: 0.5)
    with redis.Redis.from_url(server.url) as client:
        state = {
            "generation": "5",
            "stopped": "1",
            "parked": "1",
            "reason": "EVIL",
            "retry_at": "9e13",
        }
        client.hset(f"docllm:group:route:{ROUTE}:state", mapping=state)
        client.set(f"docllm:group:route:{ROUTE}:turn", "evil")
    await sharing.sync()
    assert table.closed(ROUTE, clock.now_s())

    until_s = clock.now_s() + 30.0
    while table.closed(ROUTE, clock.now_s()) and clock.now_s() < until_s:
        if table.room(ROUTE, clock.now_s(), 0, 64):
            call(table, GOOD, clock.now_s())
        await asyncio.sleep(0.05)
        await sharing.sync()

    assert not table.closed(ROUTE, clock.now_s())
    await share.close()


@dataclass
class Agent:
    """The routes of one agent, and its duty."""

    table: Router
    sharing: BoardSync
    board: RedisBoard


def agent(url: str, name: str) -> Agent:
    table, share = routes(), board(url, name)
    return Agent(
        table, BoardSync(routes=table, board=share, clock=SystemClock(), jitter=lambda: 0.5), share
    )


async def test_two_agents_through_the_faults_of_redis(
    server: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Two agents stop together, and without Redis each goes on alone.

    Their knowledge outlives the memory of Redis, and loss and return are logged once.
    """
    caplog.set_level(logging.INFO, "docllm.schemas.runtime.outage")
    first, second = agent(server.url, "first"), agent(server.url, "second")
    clock = SystemClock()
    call(second.table, failed(), clock.now_s())
    for _ in range(10):
        call(first.table, failed(), clock.now_s())
    await second.sharing.sync()
    await first.sharing.sync()
    await second.sharing.sync()
    assert second.table.closed(ROUTE, clock.now_s())

    server.freeze()
    for share in (first, first, second):
        await share.sharing.sync()
    first.table.resume(ROUTE, clock.now_s())
    server.thaw()
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    await second.sharing.sync()
    assert second.table.closed(ROUTE, clock.now_s())
    await first.sharing.sync()
    await second.sharing.sync()

    assert not second.table.closed(ROUTE, clock.now_s())
    messages = [
        record.message
        for record in caplog.records
        if record.name == "docllm.schemas.runtime.outage"
    ]
    assert [text[:21] for text in messages] == ["Redis does not answer"] * 2 + [
        "Redis answers again, "
    ] * 2
    for share in (first, second):
        await share.board.close()
