"""What a provider's error says besides its message: the names that OpenAI's errors have."""

from dataclasses import asdict, dataclass
from typing import Any

import orjson

MAX_CHARS = 191
Named = str | int | None


@dataclass(frozen=True, slots=True)
class ProviderError:
    """The `type`, `param` and `code` of a provider's error, as it sent them."""

    type: Named = None
    param: Named = None
    code: Named = None

    def packed(self) -> bytes | None:
        """Return the stored form; None if nothing is named."""
        return None if self == _NOTHING else orjson.dumps(asdict(self))


_NOTHING = ProviderError()


def provider_error_of(part: Any) -> ProviderError:
    """Return what an error's object names; whatever is no short text or number is left out."""
    if not isinstance(part, dict):
        return _NOTHING
    return ProviderError(*(_named(part.get(name)) for name in ("type", "param", "code")))


def provider_error_of_packed(raw: bytes | None) -> ProviderError | None:
    """Return a stored error, None if there is none, or if it cannot be read."""
    try:
        value = orjson.loads(raw or b"null")
    except orjson.JSONDecodeError:
        return None
    return provider_error_of(value) if isinstance(value, dict) else None


def _named(value: Any) -> Named:
    if isinstance(value, str) and len(value) <= MAX_CHARS:
        return value.encode("utf-8", "replace").decode()
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return value if is_number else None
