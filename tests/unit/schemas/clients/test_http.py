"""Addresses that the HTTP client can call."""

from datetime import timedelta

import pytest

from docllm.schemas.clients.http import connected
from docllm.schemas.clients.llm_address import endpoint
from docllm.schemas.errors import ConfigError


@pytest.mark.parametrize(
    "url", ["http://256.256.256.256/v1", "http://1.2.3.4.5/v1", "http://xn--/v1"]
)
def test_an_address_that_cannot_be_called_is_refused_at_the_start(url: str) -> None:
    """An address that cannot be called is refused at the start, with its setting.

    Otherwise each call would fail and use up an attempt.
    """
    with pytest.raises(ConfigError, match=r"llm\.base_url"):
        connected(endpoint(url), timedelta(seconds=1))


@pytest.mark.parametrize(
    "url",
    ["http://my_host:8000/v1", "http://m\u00fcller.de/v1", "http://[::1]:1/v1", "http://h/?a={b}"],
)
def test_an_odd_address_is_taken(url: str) -> None:
    """Odd addresses are accepted, such as container names and names in other scripts."""
    connected(endpoint(url), timedelta(seconds=1))
