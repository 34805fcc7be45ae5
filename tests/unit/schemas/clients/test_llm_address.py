"""The address of calls."""

import pytest

from docllm.schemas.clients.llm_address import endpoint, in_clear, is_loopback
from docllm.schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        (" http://[::1]:8000 ", "http://[::1]:8000/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        (
            "https://h/openai/deployments/d?api-version=1",
            "https://h/openai/deployments/d/chat/completions?api-version=1",
        ),
    ],
)
def test_endpoint(base_url: str, url: str) -> None:
    """The path of chat completions is added to the base once, before a query."""
    assert endpoint(base_url) == url


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "api.openai.com/v1",
        "ftp://h",
        "http://",
        "https://name:secret@h/v1",
        "http://h:secret/v1",
        "http://[::1",
        "http://<host>/v1",
        "http://{host}/v1",
        "http://${HOST}/v1",
        "http://my host/v1",
        "http://h%20x/v1",
    ],
)
def test_an_invalid_address_is_refused(base_url: str) -> None:
    """An address without scheme or host, or with a bad port or a password, is refused.

    The password is not repeated.
    """
    with pytest.raises(ConfigError) as refused:
        endpoint(base_url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:1", True),
        ("http://localhost.:1", True),
        ("http://127.9.9.9", True),
        ("http://0.0.0.0:8000/v1", True),
        ("http://[::1]", True),
        ("http://[::]:1", True),
        ("http://[::ffff:127.0.0.1]", True),
        ("http://[::ffff:10.0.0.1]", False),
        ("http://10.0.0.1", False),
        ("http://h", False),
    ],
)
def test_loopback(url: str, here: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """This machine is recognized by its names and numbers."""
    assert is_loopback(url) is here


PROXY = {"http": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "proxies", "expected"),
    [
        ("https://api.openai.com/v1", PROXY, ""),
        ("http://localhost:8000/v1", PROXY, ""),
        ("http://127.0.0.1:8000/v1", {}, ""),
        ("http://vllm:8000/v1", {}, "the API key is sent to vllm unencrypted;"),
        (
            "http://vllm:8000/v1",
            {"https": "http://proxy:3128"},
            "the API key is sent to vllm unencrypted;",
        ),
        (
            "http://vllm:8000/v1",
            PROXY,
            "unencrypted and through the proxy of HTTP_PROXY or ALL_PROXY;",
        ),
        (
            "http://vllm:8000/v1",
            {"all": "http://proxy:3128"},
            "unencrypted and through the proxy of",
        ),
        (
            "http://vllm:8000/v1",
            {**PROXY, "no": "vllm"},
            "the API key is sent to vllm unencrypted;",
        ),
    ],
)
def test_a_key_that_travels_in_clear_text_is_reported(
    url: str, proxies: dict[str, str], expected: str
) -> None:
    """HTTP_PROXY was honoured without a word in the documents, and the proxy read the key."""
    warning = in_clear(url, proxies)

    assert expected in warning
    assert bool(warning) == bool(expected)
