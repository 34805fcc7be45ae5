"""The HTTP client as every call to an LLM uses it: no redirects, no proxy on the way to this machine, no URL in what it says.

A redirect would send the key to whatever host it names.
"""

from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError
from pyreqwest.http import Url

from schemas.errors import ConfigError
from schemas.llm_address import is_loopback

_KEEPALIVE = timedelta(seconds=60)
_KEEPALIVE_INTERVAL = timedelta(seconds=15)
# What the library tells of a proxy that did not connect: the status of its refusal is lost, but for 407.
_TUNNEL = "tunnel error: "
_LOGIN = "tunnel error: proxy authorization required"
# Many servers close an idle connection after 5 s; one that is reused at that moment makes an ambiguous failure.
_IDLE = timedelta(seconds=4)


def connected(url: str, timeout: timedelta) -> Client:
    """Return a client for calls to `url`; `timeout` is for making a connection alone. Raises ConfigError for what is no address."""
    try:
        Url(url)
    except ValueError:
        raise ConfigError("llm.base_url is not an address that can be called; write for example https://api.openai.com/v1") from None
    builder = ClientBuilder().user_agent("docllm").follow_redirects(enable=False).referer(enable=False).connect_timeout(timeout)
    builder = builder.tcp_keepalive(_KEEPALIVE).tcp_keepalive_interval(_KEEPALIVE_INTERVAL).pool_idle_timeout(_IDLE)
    return (builder.no_proxy() if is_loopback(url) else builder).build()


def causes(error: PyreqwestError) -> list[str]:
    """Return what stands behind an error, the nearest first."""
    found = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return [cause["message"] for cause in found or ()]


def why(error: PyreqwestError) -> str:
    """Return the error and its causes, and what to do; the first cause repeats the URL, whose query may hold a key, and is left out."""
    said = [error.message, *(cause for cause in causes(error) if " for url " not in cause)]
    if wants_login(error):
        said.append("the proxy asks for a user and a password, set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT")
    elif said[-1].startswith(_TUNNEL):
        said.append("the proxy that HTTPS_PROXY names did not connect")
    return ": ".join(said)


def wants_login(error: PyreqwestError) -> bool:
    """Return whether a proxy answered 407, which no other call will change."""
    return _LOGIN in causes(error)
