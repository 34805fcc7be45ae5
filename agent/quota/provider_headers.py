"""Reads from a reply's headers how much of the provider's limits is left. Pure.

Only the share is used for decisions: the absolute numbers are late, and include running calls.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

_DIGITS = re.compile(r"\d{1,15}(\.\d{1,9})?")
_MAX_HEADERS = 16
_REMAINING = (  # OpenAI's form, which most servers have, and Anthropic's
    ("x-ratelimit-remaining-{}", ("requests", "tokens")),
    (
        "anthropic-ratelimit-{}-remaining",
        ("requests", "tokens", "input-tokens", "output-tokens"),
    ),
)
_KINDS = {form.format(kind): kind.replace("-", "_") for form, kinds in _REMAINING for kind in kinds}
_NAMES = frozenset(_KINDS)
_NOTHING: Mapping[str, float] = MappingProxyType({})


def share_left(headers: Mapping[str, str]) -> float | None:
    """Return the lowest share of a limit that is left, from 0 to 1; None if no header says so.

    A limit of 0 or -1 means that the provider does not report this limit, so it is ignored.
    """
    shares = [
        share
        for name, limit in headers.items()
        if (remaining := _remaining_name(name)) is not None
        and (share := _share(limit, headers.get(remaining, ""))) is not None
    ]
    return min(shares[:_MAX_HEADERS], default=None)


def left(headers: Mapping[str, str]) -> Mapping[str, float]:
    """Return the remaining parts of the limits by kind: `requests`, `tokens`, and so on.

    Limits of other kinds and values that are not numbers are left out.
    """
    if _NAMES.isdisjoint(headers):
        return _NOTHING
    return {
        kind: float(amount)
        for name, kind in _KINDS.items()
        if (amount := headers.get(name)) is not None and _DIGITS.fullmatch(amount)
    }


def _remaining_name(name: str) -> str | None:
    """Return the name of the `remaining` header that belongs to a `limit` header.

    OpenAI writes `x-ratelimit-limit-tokens`, Anthropic `anthropic-ratelimit-tokens-limit`.
    """
    if name.startswith("x-ratelimit-limit-"):
        return name.replace("-limit-", "-remaining-", 1)
    if name.startswith("anthropic-ratelimit-") and name.endswith("-limit"):
        return f"{name.removesuffix('-limit')}-remaining"
    return None


def _share(limit: str, remaining: str) -> float | None:
    if _DIGITS.fullmatch(limit) is None or _DIGITS.fullmatch(remaining) is None:
        return None
    most = float(limit)
    return None if most <= 0 else min(1.0, float(remaining) / most)
