"""Addresses to listen on: how a person writes them, and who reaches them."""

import pytest

from docllm.schemas.runtime.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.8.0.1:0", "127.8.0.1", 0, True),
        ("localhost:1", "localhost", 1, True),
        ("[::1]:9464", "::1", 9464, True),
        ("[::]:9464", "::", 9464, False),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),  # noqa: S104 - only read
        ("metrics.internal:80", "metrics.internal", 80, False),
    ],
)
def test_an_address_is_read_and_written_alike(
    text: str, host: str, port: int, *, is_loopback: bool
) -> None:
    """A name counts as reachable by others, whatever it may resolve to."""
    address = Address.read(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9464", ":9464", "::1:9464", "a:b", "h:65536", "h:1\n", "h/x:1"]
)
def test_any_other_text_is_refused_with_the_right_form(text: str) -> None:
    """The error does not repeat the text, which may be a secret in the wrong place."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.read(text)
