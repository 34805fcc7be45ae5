"""Where calls are sent. Pure."""

import ipaddress
from urllib.parse import urlsplit, urlunsplit

from schemas.errors import ConfigError

_PATH = "/chat/completions"


def endpoint(base_url: str) -> str:
    """Return the URL of chat completions below `base_url`, with or without a slash at its end; a query is kept.

    Raises ConfigError when `base_url` is no http(s) URL, or holds a name or password, which would show in logs.
    """
    url = urlsplit(base_url.strip())
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError("llm.base_url is not an http(s) URL; write for example https://api.openai.com/v1")
    if "@" in url.netloc:
        raise ConfigError("llm.base_url holds a user name or password; put the key into DOCLLM_LLM_API_KEY")
    path = url.path.rstrip("/").removesuffix(_PATH) + _PATH
    return urlunsplit((url.scheme, url.netloc, path, url.query, ""))


def is_loopback(url: str) -> bool:
    """Return whether the URL names this machine, so that no proxy can stand between."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
