"""What a person reads of an error of Redis's client."""

import asyncio

import pytest
from redis import exceptions
from redis._parsers.base import BaseParser

from docllm.schemas.clients.redis import redis_client, redis_reason
from docllm.schemas.settings.config import Secret

URL = Secret("redis://127.0.0.1:1/0")


async def ping(url: str) -> None:
    await redis_client(Secret(url), timeout_s=1.0).ping()


@pytest.mark.parametrize("end", ["0?pasword=hunter2", "0?socket_timeout=hunter2"])
def test_an_unknown_option_is_reported_without_the_address(end: str) -> None:
    """The client's own error may quote the address, which holds the password."""
    with pytest.raises((TypeError, ValueError)) as raised:
        asyncio.run(ping(f"redis://127.0.0.1:1/{end}"))

    reason = redis_reason(raised.value, URL)
    assert "redis.url" in reason
    assert "hunter2" not in reason


def test_only_errors_of_the_connection_are_quoted() -> None:
    """The text of another error may hold what was sent to Redis."""
    assert redis_reason(exceptions.ConnectionError("refused"), URL) == "refused"
    answer = exceptions.ResponseError("unknown command AUTH hunter2")
    assert "hunter2" not in redis_reason(answer, URL)
    assert redis_reason(RuntimeError("redis://:hunter2@host"), URL) == "RuntimeError"


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        ("NOAUTH Authentication required.", "redis://USER:PASSWORD@"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "special characters"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "raise its maxmemory"),
        ("READONLY You can't write against a read only replica.", "the primary"),
        ("CLUSTERDOWN Hash slot not served", "a single server"),
        ("MOVED 3999 127.0.0.1:6381", "a single server"),
        ("ERR SELECT is not allowed in cluster mode", "a single server"),
        ("ERR DB index is out of range", "write /0"),
        ("NOREPLICAS Not enough good replicas to write.", "too few of its replicas"),
        ("MASTERDOWN Link with MASTER is down", "the primary"),
        ("BUSY Redis is busy running a script.", "another program"),
        ("WRONGTYPE Operation against a key", "delete these"),
        ("MISCONF Redis is configured to save RDB snapshots", "its log"),
        ("DENIED Redis is running in protected mode because", "its protected-mode"),
        ("UNKILLABLE Sorry the script already executed", "an error UNKILLABLE; its manual"),
        ("ERR unknown command 'AUTH'", "an error; its manual"),
    ],
)
def test_an_answer_of_redis_is_reported_with_its_remedy(answer: str, remedy: str) -> None:
    """A person reads what to change, not the name of a class."""
    assert remedy in redis_reason(BaseParser.parse_error(answer), URL)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("text", "url", "remedy"),
    [
        ("h:1. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "rediss://h:1/0", "ssl_ca_certs"),
        ("Error while reading: (104, 'Connection reset by peer')", "redis://h:1/0", "rediss://"),
        ("Timeout connecting to server", "rediss://h:1/0", "write redis://"),
    ],
)
def test_an_error_of_the_connection_comes_with_its_remedy(text: str, url: str, remedy: str) -> None:
    """With the wrong scheme, the connection's error does not speak of TLS."""
    assert redis_reason(exceptions.ConnectionError(text), Secret(url)).startswith(text)
    assert remedy in redis_reason(exceptions.ConnectionError(text), Secret(url))


def test_an_address_of_the_right_scheme_is_not_doubted() -> None:
    """Without TLS in the address, a slow connection is no sign of a wrong scheme."""
    slow = exceptions.TimeoutError("Timeout connecting to server")
    assert redis_reason(slow, URL) == str(slow)
