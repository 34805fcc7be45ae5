"""The HTTP client for every call to an LLM.

It follows no redirects, because a redirect could send the key to any host. It uses no proxy for
addresses of this machine. Its errors contain no URL.
"""

from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError
from pyreqwest.http import Url

from docllm.schemas.clients.llm_address import is_loopback
from docllm.schemas.errors import ConfigError

_KEEPALIVE = timedelta(seconds=60)
_KEEPALIVE_INTERVAL = timedelta(seconds=15)
# The library's error for a proxy that did not connect. The status of the proxy's refusal is lost,
# except for 407.
_TUNNEL_FAILED = "tunnel error: "
# The library's errors for a body that is not compressed as its Content-Encoding says.
_NOT_COMPRESSED = (
    "Invalid gzip header",
    "deflate decompression error",
    "brotli error",
    "Unknown frame descriptor",  # zstd
)
_LOGIN_REQUIRED = "tunnel error: proxy authorization required"
# Many servers close an idle connection after 5 s. A call that reuses it at that moment fails
# ambiguously.
_IDLE = timedelta(seconds=4)


def connected(url: str, timeout: timedelta) -> Client:
    """Return a client for calls to `url`; `timeout` only limits making a connection.

    Raises ConfigError for a URL that is no address.
    """
    try:
        Url(url)
    except ValueError:
        raise ConfigError(
            "llm.base_url is not an address that can be called; "
            "write for example https://api.openai.com/v1"
        ) from None
    builder = (
        ClientBuilder()
        .user_agent("docllm")
        .follow_redirects(enable=False)
        .referer(enable=False)
        .connect_timeout(timeout)
        .tcp_keepalive(_KEEPALIVE)
        .tcp_keepalive_interval(_KEEPALIVE_INTERVAL)
        .pool_idle_timeout(_IDLE)
    )
    return (builder.no_proxy() if is_loopback(url) else builder).build()


def causes(error: PyreqwestError) -> list[str]:
    """Return the causes of an error, the nearest first."""
    details = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return [cause["message"] for cause in details or ()]


def why(error: PyreqwestError) -> str:
    """Return the error and its causes, and what to do.

    The first cause is left out: it repeats the URL, whose query may hold a key.
    """
    if (last := causes(error)[-1:]) and last[0].startswith(_NOT_COMPRESSED):
        return (
            f"the reply cannot be decompressed ({last[0]}): its Content-Encoding is not how the "
            "server, or a proxy before it, compressed it; turn compression off there"
        )
    parts = [error.message, *(cause for cause in causes(error) if " for url " not in cause)]
    if wants_login(error):
        parts.append(
            "the proxy asks for a user and a password, "
            "set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
        )
    elif parts[-1].startswith(_TUNNEL_FAILED):
        parts.append("the proxy that HTTPS_PROXY names did not connect")
    return ": ".join(parts)


def wants_login(error: PyreqwestError) -> bool:
    """Return whether a proxy answered 407, which no other call will change."""
    return _LOGIN_REQUIRED in causes(error)
