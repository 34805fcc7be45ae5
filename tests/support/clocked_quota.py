"""The ledger of grants in Redis on a clock that a test moves."""

import redis
from redis.asyncio import Redis as AsyncRedis

from agent.quota.redis_ledger import RedisQuotaLedger
from schemas.settings.config import Secret

_CLOCK = "test:clock"


def clocked(url: str, agent: str, client: AsyncRedis | None = None) -> RedisQuotaLedger:
    """Return the ledger whose script reads the test's clock, perhaps over a shared client."""
    ledger = RedisQuotaLedger(url=Secret(url), agent=agent)
    ledger._script = ledger._script.replace(
        "redis.call('TIME')", f"redis.call('LRANGE', '{_CLOCK}', 0, -1)"
    )
    ledger._client = client
    return ledger


def set_clock(client: redis.Redis, ms: int) -> None:
    """Move the clock."""
    with client.pipeline() as pipeline:
        pipeline.delete(_CLOCK)
        pipeline.rpush(_CLOCK, ms // 1000, ms % 1000 * 1000)
        pipeline.execute()
