"""The HTTP headers that a person sets for the calls to an LLM, such as Azure's `api-key`.

Their values are secret, as the API key is. No message holds one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.secret import Secret

AUTHORIZATION = "Authorization"
# RFC 9110, 5.6.2.
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE_CHARS = 8_000  # servers refuse longer heads
_OURS = "docllm sets it itself; remove it"
_CONNECTION = "it belongs to the connection, which docllm makes; remove it"
# Headers that nobody may set, and why. `Authorization` is refused beside a key, elsewhere.
_REFUSED = {
    "host": "docllm takes it from base_url; write the host there",
    "content-type": _OURS,
    "content-length": _OURS,
    "content-encoding": _OURS,
    "accept-encoding": _OURS,
    "x-client-request-id": _OURS,
    "transfer-encoding": _CONNECTION,
    "connection": _CONNECTION,
    "keep-alive": _CONNECTION,
    "expect": _CONNECTION,
    "te": _CONNECTION,
    "trailer": _CONNECTION,
    "upgrade": _CONNECTION,
    "proxy-connection": _CONNECTION,
    "proxy-authorization": "write HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT instead",
    "idempotency-key": "all calls would have the same key, and so the same answer; remove it",
}


def headers(value: Any) -> dict[str, Secret]:
    """Check a table of headers; return it with secret values."""
    if not isinstance(value, Mapping):
        raise ValueError('write a table of texts, such as { "api-key" = "..." }')  # noqa: TRY004
    checked = {name: _checked(name, text) for name, text in value.items()}
    lower = [name.lower() for name in checked]
    for name in checked:
        if lower.count(name.lower()) > 1:
            raise ValueError(f"{name} is there twice; capitals make no difference")
    return checked


def sent(api_key: Secret | None, headers: Mapping[str, Secret]) -> dict[str, Secret]:
    """Return the headers that carry the account in each call.

    Raises ConfigError for a key that no header can hold.
    """
    if api_key is None:
        return dict(headers)
    key = api_key.reveal().strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "llm.api_key is empty, or has blanks or characters that no key has; copy the key again"
        )
    return {**headers, AUTHORIZATION: Secret(f"Bearer {key}")}


def hidden(api_key: Secret | None, headers: Mapping[str, Secret]) -> list[str]:
    """Return every text to mask where a server repeats it, the longest first."""
    return sorted(set(_hidden(api_key, headers)), key=len, reverse=True)


def _hidden(api_key: Secret | None, headers: Mapping[str, Secret]) -> Iterator[str]:
    if api_key is not None:
        yield api_key.reveal().strip()
    for header in headers.values():
        value = header.reveal()
        scheme, _, credential = value.partition(" ")
        yield value
        # A server repeats the credential alone: `Bearer sk-1` is refused as "no such key: sk-1".
        if credential.strip() and scheme.isalpha():
            yield credential.strip()


def _checked(name: str, value: Any) -> Secret:
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            "a header's name has letters, digits and hyphens, and at most 100 of them; "
            "put it in quotes if it has dots"
        )
    if reason := _REFUSED.get(name.lower()):
        raise ValueError(f"{name}: {reason}")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}: write a text in quotes")
    text = value.strip()
    if not text.isascii() or not text.isprintable():
        raise ValueError(
            f"{name}: its value has a line break or another character that no header may have; "
            "use printable ASCII characters"
        )
    if len(text) > _VALUE_CHARS:
        raise ValueError(f"{name}: its value has {len(text)} characters; at most {_VALUE_CHARS}")
    return Secret(text)
