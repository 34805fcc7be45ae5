"""The faults that a person can configure, and the draw that decides a call's fault.

Pure: the draw follows from the seed, the request and the number of the call.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from docllm.schemas.errors import ConfigError

KINDS = ("hang", "cut", "malformed", "wrong_schema", "slow", "quota", "huge")
_STATUSES = range(300, 600)
_SETTINGS = ("retry_after", "slow_s")
_WHOLE = 1 << 64


@dataclass(frozen=True, slots=True)
class Faults:
    """The configured faults.

    `shares` maps a fault (an HTTP status or one of KINDS) to its share of all calls. `retry_after`
    is the header of a 429, in seconds.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    retry_after: float | None = None
    slow_s: float = 5.0

    def pick(self, chance: float) -> str | None:
        """Return the fault of a call, or None. Its draw `chance` is from 0 to below 1."""
        edge = 0.0
        for name, share in self.shares.items():
            edge += share
            if chance < edge:
                return name
        return None

    def as_mapping(self) -> dict[str, float]:
        """Return the faults in the form that `read` takes."""
        settings = {} if self.retry_after is None else {"retry_after": self.retry_after}
        return {**self.shares, **settings, "slow_s": self.slow_s}


def parse(text: str) -> Faults:
    """Return the faults of an option such as `429=0.05,hang=0.01,retry_after=2`.

    Raises ConfigError for any other text.
    """
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return read_faults({name.strip(): value for name, _, value in pairs})


def read_faults(by_name: Mapping[str, Any]) -> Faults:
    """Return the faults of a mapping from name to number.

    Raises ConfigError when a fault is unknown or the shares exceed 1.
    """
    numbers = {name: _number(name, value) for name, value in by_name.items()}
    shares = {name: value for name, value in numbers.items() if name not in _SETTINGS}
    for name in shares:
        if name not in KINDS and not (name.isascii() and name.isdigit() and int(name) in _STATUSES):
            raise ConfigError(
                f"fault {name!r} is unknown; use an HTTP status, {', '.join(KINDS)}, "
                f"or set {', '.join(_SETTINGS)}"
            )
    if sum(shares.values()) > 1 + 1e-9:
        raise ConfigError("the shares of the faults add up to more than 1")
    return Faults(shares, numbers.get("retry_after"), numbers.get("slow_s", 5.0))


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ConfigError(f"fault {name!r} needs a number from 0, for example {name}=0.05")
    return number


def draw(seed: int, name: str, nth: int) -> tuple[float, float]:
    """Return two numbers from 0 to below 1, for fault and latency.

    They are the same for the same call, whatever the order of arrival.
    """
    raw = hashlib.blake2b(f"{seed}/{nth}/{name}".encode(), digest_size=16).digest()
    return int.from_bytes(raw[:8], "big") / _WHOLE, int.from_bytes(raw[8:], "big") / _WHOLE
