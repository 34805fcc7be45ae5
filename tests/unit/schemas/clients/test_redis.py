"""What a person reads of an error of Redis's client."""

import asyncio

import pytest
from redis import exceptions

from schemas.clients.redis import redis_client, redis_reason
from schemas.settings.config import Secret


@pytest.mark.parametrize("end", ["0?pasword=hunter2", "0?socket_timeout=hunter2"])
def test_an_unknown_option_is_reported_without_the_address(end: str) -> None:
    """The client's own error may quote the address, which holds the password."""
    with pytest.raises((TypeError, ValueError)) as raised:
        asyncio.run(redis_client(Secret(f"redis://127.0.0.1:1/{end}"), timeout_s=1.0).ping())

    reason = redis_reason(raised.value)
    assert "DOCLLM_REDIS_URL" in reason
    assert "hunter2" not in reason


def test_only_errors_of_the_connection_are_quoted() -> None:
    """The text of another error may hold what was sent to Redis."""
    assert redis_reason(exceptions.ConnectionError("refused")) == "refused"
    assert redis_reason(exceptions.ResponseError("unknown command AUTH hunter2")) == "ResponseError"
