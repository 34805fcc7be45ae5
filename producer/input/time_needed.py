"""Estimates the least time that a load takes, from the limits of its accounts.

Answer tokens are not included, so the time is a lower bound. Also finds tasks that alone are larger
than a minute's tokens: a provider may refuse them whenever they are sent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine
from docllm.producer.text.pace import duration
from docllm.schemas.settings.account import quotas
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.wording import number_of

_PERIOD_S = {"rpm": 60.0, "rpd": 86_400.0, "tpm": 60.0, "itpm": 60.0}
_WORTH_SAYING_S = 60.0
_NAME_CHARS = 80


@dataclass(slots=True)
class _Load:
    """The calls of one account, and its limits by name."""

    route: str
    limits: Mapping[str, int]
    calls: int = 0
    size_bytes: int = 0
    too_large: int = 0  # tasks
    largest_tokens: int = 0
    largest: str = ""

    @property
    def binding(self) -> str:
        """The name of the limit that takes longest; empty if none takes time."""
        return max(
            (name for name in self.limits if name in _PERIOD_S), key=self._seconds, default=""
        )

    @property
    def least_s(self) -> float:
        """How long the calls take at least."""
        return self._seconds(self.binding) if self.binding else 0.0

    def _seconds(self, name: str) -> float:
        tokens = self.size_bytes / BYTES_PER_TOKEN
        count = self.calls if name in {"rpm", "rpd"} else tokens
        return count * _PERIOD_S[name] / self.limits[name]

    @property
    def tokens_a_minute(self) -> tuple[str, float]:
        """The lowest limit of prompt tokens a minute: its name, and the number."""
        limits = [(name, self.limits[name]) for name in ("tpm", "itpm") if name in self.limits]
        return min(limits, key=itemgetter(1), default=("", inf))


class TimeNeeded:
    """Adds up the calls of a load by account."""

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._limits = quotas(accounts.config)
        self._loads: dict[str, _Load] = {}

    def add(self, line: ValidLine) -> None:
        """Count one task: its line, and the document that it names by URI."""
        if not self._limits:
            return
        account = self._accounts.of(line.task)
        if account.quota not in self._limits:
            return
        load = self._loads.get(account.quota)
        if load is None:
            load = _Load(account.route, self._limits[account.quota].given)
            self._loads[account.quota] = load
        size_bytes = line.input_bytes
        load.calls += 1
        load.size_bytes += size_bytes
        tokens = size_bytes // BYTES_PER_TOKEN
        # Agents split tasks of that type.
        if line.task.type != MAP_REDUCE and tokens > load.tokens_a_minute[1]:
            load.too_large += 1
            if tokens > load.largest_tokens:
                load.largest_tokens, load.largest = tokens, line.document or line.key

    def as_json(self) -> dict[str, Any]:
        """Return the form for `--json`; the seconds are None where no limit is set."""
        load = self._slowest()
        if load is None:
            return {"least_s": None, "limited_by": None}
        limited_by = {"route": load.route, "limit": load.binding}
        return {"least_s": round(load.least_s, 1), "limited_by": limited_by}

    def __str__(self) -> str:
        """Return the time, empty if it is short or no limit is set."""
        load = self._slowest()
        if load is None or load.least_s < _WORTH_SAYING_S:
            return ""
        return (
            f"at least {duration(load.least_s)}, because of {load.binding} = "
            f"{load.limits[load.binding]:,} of route {load.route}"
        )

    def too_large(self) -> Iterator[str]:
        """Yield a warning for each account with tasks that are larger than a minute's tokens."""
        for load in self._loads.values():
            if load.too_large:
                name, limit = load.tokens_a_minute
                verb = "is" if load.too_large == 1 else "are"
                yield (
                    f"{number_of(load.too_large, 'task')} {verb} probably larger than a minute's "
                    f"tokens, {name} = {limit:,} of route {load.route}, such as "
                    f"{load.largest[:_NAME_CHARS]!r} (about {load.largest_tokens:,} tokens); the "
                    f"provider may refuse them again and again: correct {name} in the settings, or "
                    "load them as type map-reduce, which splits them"
                )

    def _slowest(self) -> _Load | None:
        """Return the calls that take longest, None if no limit takes time."""
        limited = [load for load in self._loads.values() if load.binding]
        return max(limited, key=lambda load: load.least_s, default=None)
