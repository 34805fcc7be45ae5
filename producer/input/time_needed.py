"""Estimates the least time that a load takes, from the limits of its accounts.

Answer tokens are not included, so the time is a lower bound. Also finds tasks that alone are larger
than a minute's tokens: a provider may refuse them whenever they are sent.
"""

from collections.abc import Iterator
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
    """The calls of one account."""

    route: str
    calls: int = 0
    size_bytes: int = 0
    too_large: int = 0  # tasks
    largest_tokens: int = 0
    largest: str = ""


@dataclass(frozen=True, slots=True)
class _TimeBound:
    """How long a limit of a route takes at least."""

    seconds: float
    route: str
    name: str
    limit: int


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
        if account.quota in self._limits:
            load = self._loads.setdefault(account.quota, _Load(account.route))
            size_bytes = line.input_bytes
            load.calls += 1
            load.size_bytes += size_bytes
            self._check_size(load, account.quota, line, size_bytes // BYTES_PER_TOKEN)

    def as_json(self) -> dict[str, Any]:
        """Return the form for `--json`; the seconds are None where no limit is set."""
        bound = self._binding()
        return {
            "least_s": None if bound is None else round(bound.seconds, 1),
            "limited_by": None if bound is None else {"route": bound.route, "limit": bound.name},
        }

    def __str__(self) -> str:
        """Return the time, empty if it is short or no limit is set."""
        bound = self._binding()
        if bound is None or bound.seconds < _WORTH_SAYING_S:
            return ""
        return (
            f"at least {duration(bound.seconds)}, because of {bound.name} = {bound.limit:,} "
            f"of route {bound.route}"
        )

    def too_large(self) -> Iterator[str]:
        """Yield a warning for each account with tasks that are larger than a minute's tokens."""
        for key, load in self._loads.items():
            if load.too_large:
                name, limit = self._tokens_a_minute(key)
                verb = "is" if load.too_large == 1 else "are"
                yield (
                    f"{number_of(load.too_large, 'task')} {verb} probably larger than a minute's "
                    f"tokens, {name} = {limit:,} of route {load.route}, such as "
                    f"{load.largest[:_NAME_CHARS]!r} (about {load.largest_tokens:,} tokens); the "
                    f"provider may refuse them again and again: correct {name} in the settings, or "
                    "load them as type map-reduce, which splits them"
                )

    def _check_size(self, load: _Load, key: str, line: ValidLine, tokens: int) -> None:
        if line.task.type == MAP_REDUCE or tokens <= self._tokens_a_minute(key)[1]:
            return  # agents split tasks of that type
        load.too_large += 1
        if tokens > load.largest_tokens:
            load.largest_tokens, load.largest = tokens, line.document or line.key

    def _tokens_a_minute(self, key: str) -> tuple[str, float]:
        """Return the lowest limit of prompt tokens a minute: its name, and the number."""
        given = self._limits[key].given
        limits = [(name, given[name]) for name in ("tpm", "itpm") if name in given]
        return min(limits, key=itemgetter(1), default=("", inf))

    def _binding(self) -> _TimeBound | None:
        """Return the limit that takes longest."""
        bounds = [
            _TimeBound(_seconds(name, limit, load), load.route, name, limit)
            for key, load in self._loads.items()
            for name, limit in self._limits[key].given.items()
            if name in _PERIOD_S
        ]
        return max(bounds, key=lambda bound: bound.seconds, default=None)


def _seconds(name: str, limit: int, load: _Load) -> float:
    tokens = load.size_bytes / BYTES_PER_TOKEN
    return (load.calls if name in {"rpm", "rpd"} else tokens) * _PERIOD_S[name] / limit
