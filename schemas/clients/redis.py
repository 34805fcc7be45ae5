"""The client of Redis, and what its errors may say."""

import re

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docllm.schemas.errors import UnreachableError
from docllm.schemas.settings.config import Secret

_ACCESS = (
    "it does not accept the user and password of redis.url, or needs them; "
    "write redis://USER:PASSWORD@HOST:PORT/0, special characters as %XX"
)
_CLUSTER = "it is a Redis Cluster, which docllm cannot use; set redis.url to a single server"
# What some errors mean; the first that fits holds.
_REASONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (
        (TypeError, ValueError),
        "redis.url has options that Redis clients do not know; check what follows '?'",
    ),
    (
        AuthenticationError,
        _ACCESS,
    ),
    (
        OutOfMemoryError,
        "its memory is full; raise its maxmemory, or set redis.url to a Redis of docllm's own",
    ),
    (MasterDownError, "it is a replica that has lost its primary; set redis.url to the primary"),
    (ReadOnlyError, "it is a read-only replica; set redis.url to the primary"),
    ((MovedError, ClusterDownError, ClusterCrossSlotError), _CLUSTER),
    (TimeoutError, "no answer in time"),
)
# What to do, by the beginning of the address and words of a connection's error.
_AUTHORITY = "; for an authority of your own, add ?ssl_ca_certs=FILE to redis.url"
_NO_TLS = "; if that port has no TLS, write redis:// in redis.url"
_HINTS = (
    (
        "rediss:",
        "CERTIFICATE_VERIFY",
        _AUTHORITY,
    ),
    ("rediss:", "WRONG_VERSION", _NO_TLS),
    ("rediss:", "Timeout connecting", _NO_TLS),
    ("redis:", "Connection reset", "; if that port has TLS, write rediss:// in redis.url"),
    ("", "No such file", "; check the files that redis.url names"),
)
# What an answer means, by words of it.
_ANSWERS = {
    "DB index": "it has no database of the number in redis.url; write /0",
    "cluster mode": _CLUSTER,
    "NOREPLICAS": "it takes no writes, because too few of its replicas are connected",
    "BUSY ": "it is busy with a script of another program",
    "WRONGTYPE": "another program has written its keys docllm:*; delete these",
    "MISCONF": "it cannot save its data (MISCONF); its log says why",
    "DENIED": (
        "it is in protected mode and answers programs of its own host alone; give it a password, "
        "or set its protected-mode to no where only docllm reaches it"
    ),
}
_WORD = re.compile(r"[A-Z]{2,20}(?= )")  # names an error; what follows may quote a command


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


async def ping(url: Secret, *, timeout_s: float) -> None:
    """Return if the server answers. Raises UnreachableError."""
    try:
        async with redis_client(url, timeout_s=timeout_s) as client:
            await client.ping()
    except Exception as error:  # noqa: BLE001 - whatever fails, Redis is of no use
        reason = redis_reason(error, url)
        text = f"Redis does not answer ({reason}); check DOCLLM_REDIS_URL"
        raise UnreachableError(text, may_pass=is_away(error)) from None


def is_away(error: Exception) -> bool:
    """Return whether the server may be about to start, and did not refuse."""
    is_connection = isinstance(error, RedisConnectionError | RedisTimeoutError | TimeoutError)
    return is_connection and not isinstance(error, AuthenticationError | AuthorizationError)


def redis_reason(error: Exception, url: Secret) -> str:
    """Return the text of an error of this address that may be shown, and what to do about it.

    Errors of the connection may be shown as they are. Other errors of the client quote the address
    or a command.
    """
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    text = str(error)
    if isinstance(error, RedisConnectionError | RedisTimeoutError):
        hints = (
            hint
            for scheme, words, hint in _HINTS
            if words in text and url.reveal().startswith(scheme)
        )
        return text + "".join(hints)
    if isinstance(error, ResponseError):
        known = (reason for words, reason in _ANSWERS.items() if words in text)
        return next(known, None) or _other_answer(text)
    return type(error).__name__


def _other_answer(text: str) -> str:
    word = _WORD.match(text)
    return f"it answers with an error{f' {word[0]}' if word else ''}; its manual says what it means"
