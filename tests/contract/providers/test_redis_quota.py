"""The grant store in Redis by its real clock: evictions, old dumps, strange values, rights."""

import asyncio
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
import redis

from docllm.agent.quota.grants import Charge, QuotaRequest, RedisAwayError, WaitingCall
from docllm.agent.quota.redis_grants import KEEP_S, RedisGrantStore
from docllm.producer.checks.redis_rights import ENOUGH, NAMES
from docllm.schemas.settings.config import Secret
from docllm.schemas.settings.quota import QuotaLimits
from tests.servers import Redis

SCRIPT = files("docllm.agent.quota").joinpath("quota.lua").read_text("utf-8")


def request(sequence: int = 1, rpm: int = 60_000, waiting: int = 5) -> QuotaRequest:
    """Return a request of an account with 1,000 calls a second."""
    task = WaitingCall(charge=Charge(tokens_in=1, tokens_out=1))
    return QuotaRequest(
        key="k", limits=QuotaLimits(rpm=rpm), sequence=sequence, waiting=(task,) * waiting
    )


def store(url: str, agent: str = "a") -> RedisGrantStore:
    return RedisGrantStore(url=Secret(url), agent=agent)


@pytest.fixture
def server(redis_server: Redis) -> Iterator[Redis]:
    """An empty Redis, which is restarted afterwards."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    yield redis_server
    redis_server.restart()


async def granted(one: RedisGrantStore, sequence: int) -> int:
    """Return how many calls of a request are granted."""
    return sum((await one.exchange([request(sequence)]))[0].granted)


def test_every_command_of_the_script_is_tried() -> None:
    """A command that is added to the script must be added to the list that `check` tries."""
    commands = set(re.findall(r"redis\.call\('(\w+)'", SCRIPT))

    assert {"HGET", "ZADD"} <= commands <= NAMES


async def test_a_redis_that_evicts_its_keys_tells_that_it_forgets(server: Redis) -> None:
    """Its memory of the account begins anew at each request, and it grants nothing."""
    one = store(server.url)
    await granted(one, 1)
    with redis.Redis.from_url(server.url) as client:
        memory = client.info("memory")
        counted = memory["used_memory"] - memory["mem_not_counted_for_evict"]
        client.config_set("maxmemory-policy", "volatile-lru")
        client.config_set("maxmemory", counted - 500)
        began = []
        for sequence in range(2, 12):
            await asyncio.sleep(0.01)
            (answer,) = await one.exchange([request(sequence)])
            began.append(answer.began_ms)
        client.config_set("maxmemory", 0)

    assert len(set(began)) >= 5
    await one.close()


async def test_an_old_dump_grants_no_more_than_the_capacity(server: Redis) -> None:
    """The account's hash of a minute ago counts as an idle minute."""
    one = store(server.url)
    await granted(one, 1)
    with redis.Redis.from_url(server.url) as client:
        client.hincrby("docllm:quota:{k}:account", "at", -60_000)

    (answer,) = await one.exchange([request(2, rpm=600, waiting=64)])

    assert sum(answer.granted) == 8
    await one.close()


@pytest.mark.parametrize(
    "written",
    [
        {"at": "9" * 15, "clock": "5", "pause": "1e15", "cut": "1e15", "recount": "1e15"},
        {"scale": "nan", "rpm": "nan", "clock": "nonsense"},
        {"scale": "1e9", "rpm": "-1e15", "held": "99", "claim": "99"},
    ],
)
async def test_strange_values_are_overcome(server: Redis, written: dict[str, str]) -> None:
    """Whatever somebody wrote into the keys, grants go on."""
    one = store(server.url)
    await granted(one, 1)
    with redis.Redis.from_url(server.url) as client:
        client.hset("docllm:quota:{k}:account", mapping=written)
    for sequence in range(2, 200):
        client.hincrby("docllm:quota:{k}:account", "at", -1000)
        if await granted(one, sequence):
            break
    else:
        pytest.fail("nothing is granted any more")
    await one.close()


async def test_keys_have_names_and_an_end(server: Redis) -> None:
    """The keys of an account share a place in a cluster, and expire."""

    async def told() -> None:
        one = store(server.url)
        await granted(one, 1)
        await one.close()

    await told()

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        ends = {key: client.ttl(key) for key in client.scan_iter()}
    parts = ("account", "agents", "hungry", "seen")
    assert sorted(ends) == [f"docllm:quota:{{k}}:{part}" for part in parts]
    assert all(KEEP_S - 60 <= end <= KEEP_S for end in ends.values())


async def test_rights_that_are_missing_are_named(server: Redis) -> None:
    """The documented rights are enough; a command that is refused is named."""
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", *ENOUGH.split())
        url = server.url.replace("redis://", "redis://app:pw@")
        one = store(url)
        assert await granted(one, 1) == 0
        admin.execute_command("ACL", "SETUSER", "app", "-zadd")
        with pytest.raises(RedisAwayError, match=r"refuses ZADD to its user; run: .* check"):
            await one.exchange([request(2)])
        admin.execute_command("ACL", "DELUSER", "app")
