"""The tests of `producer check`: each server, the schema, the topics and the LLM. Nothing is changed, and no secret is shown."""

import asyncio
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from producer import check_llm
from producer.app import make_admin, open_database
from producer.topics.family import Family, with_old_tiers
from schemas import migrations
from schemas.clock import SystemClock
from schemas.config import Config
from schemas.database import Database
from schemas.errors import ConfigError, DocllmError, UnreachableError
from schemas.lanes import ThreadLane
from schemas.settings import require_llm
from schemas.topics import Topics

REDIS_TIMEOUT_S = 2.0


class Checks:
    """The tests of one configuration, in the order in which they build on each other."""

    def __init__(self, config: Config, group: str) -> None:
        self._config = config
        self._group = group

    def all(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        """Return name and test; a test returns what is well and raises DocllmError with what to do."""
        tests: list[tuple[str, Callable[[], Awaitable[str]]]] = [("database", self._database), ("schema", self._schema)]
        tests += [("bus", self._bus), ("topics", self._topics)]
        if self._config.redis_url is not None:
            tests.append(("redis", self._redis))
        return [*tests, ("llm", self._llm)]

    async def _database(self) -> str:
        def where(database: Database) -> str:
            return f"{database.where} answers"

        return await self._with_database(where)

    async def _schema(self) -> str:
        def compare(database: Database) -> str:
            migrations.require(database)
            return f"revision {migrations.wanted()}, ledger {database.auto(migrations.ledger_id)}"

        return await self._with_database(compare)

    async def _with_database(self, test: Callable[[Database], str]) -> str:
        def run() -> str:
            database = open_database(self._config, connections=1)
            try:
                return test(database)
            finally:
                database.close()

        return await asyncio.to_thread(run)

    async def _bus(self) -> str:
        admin = make_admin(self._config, SystemClock())
        try:
            return f"{self._config.kafka.bootstrap or 'embedded'}, cluster {await admin.cluster_id()}"
        finally:
            await admin.close()

    async def _topics(self) -> str:
        await self._schema()
        database = await asyncio.to_thread(open_database, self._config, connections=1)
        configured = Topics(self._group, self._config.retry_tiers)
        topics = await asyncio.to_thread(database.auto, lambda c: with_old_tiers(c, configured))
        clock, lane = SystemClock(), ThreadLane("check")
        admin = make_admin(self._config, clock)
        try:
            known = await Family(admin=admin, database=database, lane=lane, topics=topics, clock=clock).require()
        finally:
            await admin.close()
            lane.close()
            database.close()
        return f"{len(known.topic_ids)} topics of group {self._group} are as they should be"

    async def _redis(self) -> str:
        url = self._config.redis_url.reveal() if self._config.redis_url else ""
        once = Retry(NoBackoff(), 0)
        try:
            async with Redis.from_url(url, retry=once, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S) as client:
                version = (await client.info("server"))["redis_version"]
        except (TypeError, ValueError):
            raise ConfigError(
                "the address holds what Redis clients do not know; check DOCLLM_REDIS_URL, above all what follows '?'"
            ) from None
        except (RedisError, OSError) as error:
            raise UnreachableError(f"does not answer ({_reason(error)}); agents run without it; check DOCLLM_REDIS_URL") from None
        return f"version {version}"

    async def _llm(self) -> str:
        require_llm(self._config)
        return await check_llm.ask(self._config.llm)


def _reason(error: Exception) -> str:
    """What the way to a server says can be shown; other errors of the client quote what is in the address."""
    return str(error) if isinstance(error, RedisConnectionError | RedisTimeoutError) else type(error).__name__


async def outcome(test: Callable[[], Awaitable[str]]) -> tuple[int, str]:
    """Run one test; return its exit code, 0 when all is well, and what to say."""
    try:
        return 0, await test()
    except DocllmError as error:
        return error.exit_code, str(error)
