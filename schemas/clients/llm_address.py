"""Where agents and `docllm check` send their calls to an LLM."""

import ipaddress
import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote_plus, urlsplit, urlunsplit

from docllm.schemas.errors import ConfigError

_PATH = "/chat/completions"
MIN_SECRET = 4  # characters; a shorter part of a query is a version or a switch
_VERSION = re.compile("/v[0-9]")
# An example that was copied unchanged, such as http://{host}/v1.
_NO_HOST = re.compile(r"[\s\"%<>\\^`{|}]")


def endpoint(base_url: str) -> str:
    """Return the URL of chat completions below `base_url`; its query is kept.

    `base_url` may end with a slash. Raises ConfigError when `base_url` is no http(s) URL, or holds
    a name or password, which would show in logs.
    """
    url = _split(base_url.strip())
    host = "" if url is None or url.scheme not in {"http", "https"} else url.hostname
    if url is None or not host or _NO_HOST.search(host):
        raise ConfigError(
            "llm.base_url is not an http(s) URL; write for example https://api.openai.com/v1"
        )
    if "@" in url.netloc:
        raise ConfigError(
            "llm.base_url holds a user name or password; put the key into DOCLLM_LLM_API_KEY"
        )
    path = url.path.rstrip("/").removesuffix(_PATH) + _PATH
    return urlunsplit((url.scheme, url.netloc, path, url.query, ""))


def lacks_version(url: str) -> bool:
    """Return whether the URL's path names no version, such as `/v1`; most servers need one."""
    return _VERSION.search(urlsplit(url).path) is None


def with_version(url: str) -> str:
    """Return the base URL of an endpoint with `/v1` at the end of its path."""
    parts = urlsplit(url)
    path = parts.path.removesuffix(_PATH) + "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _split(text: str) -> SplitResult | None:
    """Return the parts of a URL; None for invalid brackets or an invalid port.

    The HTTP client would report these as a bug.
    """
    try:
        url = urlsplit(text)
        is_valid = url.port != 0
    except ValueError:
        return None
    return url if is_valid else None


def shown(url: str) -> str:
    """Return the URL without its query, which may hold a key."""
    return url.partition("?")[0]


def public(url: str) -> str:
    """Return what may be shown of a URL: no user name, no password, no query."""
    parts = _split(url.strip())
    if parts is None:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def query_secrets(url: str) -> set[str]:
    """Return the values of the URL's query, as written and decoded; a key may be among them."""
    pairs = urlsplit(url).query.split("&")
    written = {pair.partition("=")[2] or pair for pair in pairs}
    values = written | {unquote_plus(value) for value in written}
    return {value for value in values if len(value) >= MIN_SECRET}


def is_loopback(url: str) -> bool:
    """Return whether the URL names this machine, so that no proxy can be in between."""
    host = (urlsplit(url).hostname or "").removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    # Servers say that they listen on 0.0.0.0.
    return address.is_unspecified or (mapped or address).is_loopback


def environment_proxies() -> dict[str, str]:
    """Return the proxies that the environment names, by the scheme of an address."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies_environment  # noqa: PLC0415 - with a whole HTTP client

    return getproxies_environment()


def in_clear(url: str, proxies: Mapping[str, str], *, has_key: bool = True) -> str:
    """Return a warning if secrets would go to the address unencrypted; otherwise empty.

    The secrets are the key or, for an account without a key, the headers. `proxies` is what
    `environment_proxies` returns. To an https:// address a proxy only passes on
    what it cannot read.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or is_loopback(url):
        return ""
    through = ""
    if (proxies.get("http") or proxies.get("all")) and not _is_bypassed(parts.netloc, proxies):
        through = " and through the proxy of HTTP_PROXY or ALL_PROXY"
    secrets = "the API key is" if has_key else "the headers of the account are"
    return (
        f"{secrets} sent to {parts.hostname} unencrypted{through}; "
        "use an https:// address if there is one"
    )


def _is_bypassed(host: str, proxies: Mapping[str, str]) -> bool:
    """Return whether NO_PROXY names the host."""
    import urllib.request  # noqa: PLC0415 - with a whole HTTP client

    bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # not in stubs
    return bool(bypass(host, dict(proxies)))
