"""Estimates the least time that a load takes, from the limits of its accounts.

Answer tokens are not included, so the time is a lower bound.
"""

from dataclasses import dataclass
from typing import Any

from producer.input.lines import ValidLine
from producer.text.pace import duration
from schemas.settings.account import account, quota_key, quotas
from schemas.settings.config import BYTES_PER_TOKEN, DEFAULT_ROUTE, Config
from schemas.settings.routing import configured_route
from schemas.task.line import TaskLine

_PERIOD_S = {"rpm": 60.0, "rpd": 86_400.0, "tpm": 60.0, "itpm": 60.0}
_REMEMBERED = 1000
_WORTH_SAYING_S = 60.0


@dataclass(slots=True)
class _Load:
    """The calls of one account."""

    route: str
    calls: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _TimeBound:
    """How long a limit of a route takes at least."""

    seconds: float
    route: str
    name: str
    limit: int


class TimeNeeded:
    """Adds up the calls of a load by account."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._limits = quotas(config)
        self._keys: dict[tuple[str, str | None, str | None], tuple[str, str]] = {}
        self._loads: dict[str, _Load] = {}

    def add(self, line: ValidLine) -> None:
        """Count one task: its line, and the document that it names by URI."""
        if not self._limits:
            return
        route, key = self._account_of(line.task)
        if key in self._limits:
            load = self._loads.setdefault(key, _Load(route))
            load.calls += 1
            load.size_bytes += len(line.value) + (line.task.size or 0)

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

    def _binding(self) -> _TimeBound | None:
        """Return the limit that takes longest."""
        bounds = [
            _TimeBound(_seconds(name, limit, load), load.route, name, limit)
            for key, load in self._loads.items()
            for name, limit in self._limits[key].given.items()
            if name in _PERIOD_S
        ]
        return max(bounds, key=lambda bound: bound.seconds, default=None)

    def _account_of(self, task: TaskLine) -> tuple[str, str]:
        """Return the route of a task and the key of its quota; the key is empty without one."""
        choice = task.type, task.model, task.route
        if choice not in self._keys:
            if len(self._keys) > _REMEMBERED:  # names come from lines, so there may be any number
                self._keys.clear()
            route = configured_route(self._config, *choice)
            known = route is not None
            key = quota_key(account(self._config, route or DEFAULT_ROUTE)) if known else ""
            self._keys[choice] = route or "", key
        return self._keys[choice]


def _seconds(name: str, limit: int, load: _Load) -> float:
    tokens = load.size_bytes / BYTES_PER_TOKEN
    return (load.calls if name in {"rpm", "rpd"} else tokens) * _PERIOD_S[name] / limit
