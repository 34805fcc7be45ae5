"""The grant store in Redis on a clock that a test moves."""

import redis
from redis.asyncio import Redis as AsyncRedis

from docllm.agent.quota.redis_grants import RedisGrantStore
from docllm.schemas.settings.config import Secret

_CLOCK = "test:clock"


def clocked(url: str, agent: str, client: AsyncRedis | None = None) -> RedisGrantStore:
    """Return the store whose script reads the test's clock, perhaps over a shared client."""
    store = RedisGrantStore(url=Secret(url), agent=agent)
    script = store._script
    script._script = script._script.replace(
        "redis.call('TIME')", f"redis.call('LRANGE', '{_CLOCK}', 0, -1)"
    )
    script._client = client
    return store


def set_clock(client: redis.Redis, ms: int) -> None:
    """Move the clock."""
    with client.pipeline() as pipeline:
        pipeline.delete(_CLOCK)
        pipeline.rpush(_CLOCK, ms // 1000, ms % 1000 * 1000)
        pipeline.execute()
