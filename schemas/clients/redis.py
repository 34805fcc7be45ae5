"""The client of Redis, and what its errors may say."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from schemas.settings.config import Secret


def redis_client(url: Secret, *, timeout_s: float) -> Redis:
    """Return a client that connects at its first command and repeats none.

    `timeout_s` holds for the connection and for each answer. Raises TypeError or ValueError for an
    address that Redis clients do not know.
    """
    return Redis.from_url(
        url.reveal(),
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
    )


def redis_reason(error: Exception) -> str:
    """Return the text of an error that may be shown.

    Errors of the connection may be shown as they are. Other errors of the client quote the address.
    """
    if isinstance(error, TypeError | ValueError):
        return (
            "the address has options that Redis clients do not know; "
            "check DOCLLM_REDIS_URL, above all what follows '?'"
        )
    if isinstance(error, RedisConnectionError | RedisTimeoutError):
        return str(error)
    return type(error).__name__
