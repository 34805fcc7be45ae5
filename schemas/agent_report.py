"""What an agent reports of itself with each heartbeat, and the JSON in which it is stored.

Agents of other versions write it too, and whoever may write to the ledger can change it. So a
reader ignores names that it does not know, and every text, list and number is bounded.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, TypeVar

import orjson

from docllm.schemas.task.task_types import is_name

FORM = 1
MAX_BYTES = 16 << 10
MAX_ROUTES = 20
MAX_TYPES = 100
# How many entries of each list are kept, if the report is too long with more.
_FEWER = (MAX_ROUTES, 5, 1, 0)
_NAME_CHARS = 64
_BATCH_CHARS = 191
_WORD_CHARS = 32
_TEXT_CHARS = 300
_TOPICS = 64
_MAX_NUMBER = 2**63 - 1  # the largest number that every program can read

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why something does not run.

    `code` is a `Code`, unless a newer agent has another one. `name` is the route, the topic or the
    type. `text` is a server's own text, on one line. `seconds` is the time until the next try. For
    hanging calls, `seconds` is the age of the oldest and `usual_s` the usual duration of a call.
    `model` and `address` are those of a route; no address holds a password or a query. `fallback`
    is the route on which its tasks run meanwhile. For tasks that wait for a limit: `kind` is whose
    it is, `tenant`, `type` or `limit`, and empty for a route, `text` is the limit's setting,
    `count` its value, `agents` the number of agents that share it, and `seconds` the remaining
    pause. If `agents` is 0, the agent uses only its own part, and `trouble` says why
    Redis cannot be used. For a lock: `text` is its holder, `count` the number of waiting tasks of
    this agent, and `seconds` the longest wait.
    """

    code: str
    name: str = ""
    error_class: str = ""
    text: str = ""
    seconds: float = 0.0
    count: int = 0
    usual_s: float | None = None
    model: str = ""
    address: str = ""
    fallback: str = ""
    agents: int = 0
    trouble: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """One route in one agent.

    `state` is a `RouteState`. `since` is when the stop or pause began, in UTC; empty if the route
    takes calls. `allowed` is the limit of running calls that the agent has learned; None if only
    the slots limit them.
    """

    name: str
    state: str
    error_class: str = ""
    since: str = ""
    open_in_s: float = 0.0
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class CallReport:
    """A running call of a task."""

    task: int
    batch: str
    key: str
    route: str
    running_s: float


@dataclass(frozen=True, slots=True)
class SuspectReport:
    """A crash suspect that runs, and over which so many agents were lost."""

    task: int
    batch: str
    key: str
    losses: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The task that blocks the agent's event loop; the first four are empty if no task does.

    `place` is the file and line of the code that blocks.
    """

    task: int = 0
    batch: str = ""
    key: str = ""
    type: str = ""
    place: str = ""
    blocked_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """One agent, as its main loop saw it `loop_age_s` before the heartbeat.

    - `busy` counts, by route, the tasks that run or are being claimed.
    - `routes` has the routes that are closed or busy, the worst first. `routes_left_out` counts
      the others of these.
    - `lag` is by destination, as in `outbox`: the records above the watermarks of the partitions
      that this agent owns.
    - `types` are the types of task that the agent knows, at most `MAX_TYPES`. A report that is too
      long without them leaves them out.
    - `settings` is a digest of all settings except secrets.
    - `program` is the version of docllm, `revision` that of its schema.
    """

    version: int = FORM
    slots: int = 0
    running: int = 0
    draining: bool = False
    busy: Mapping[str, int] = field(default_factory=dict)
    routes: tuple[RouteFacts, ...] = ()
    routes_left_out: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    oldest_call: CallReport | None = None
    suspects: tuple[SuspectReport, ...] = ()
    reasons: tuple[Reason, ...] = ()
    types: tuple[str, ...] = ()
    settings: str = ""
    program: str = ""
    revision: str = ""
    loop_age_s: float = 0.0
    blocked_by: BlockReport | None = None


def to_json(report: AgentReport) -> str:
    """Return the stored form, at most `MAX_BYTES` long; lists are shortened for it."""
    values, raw = asdict(report), b""
    for most in _FEWER:
        raw = orjson.dumps(asdict(_report(values, most)))
        if len(raw) <= MAX_BYTES:
            break
    return raw.decode()


def from_json(raw: str | None) -> AgentReport | None:
    """Return a stored report; None if there is none, or if it cannot be read."""
    if not raw or len(raw) > MAX_BYTES:
        return None
    try:
        values = orjson.loads(raw)
    except ValueError:
        return None
    return _report(values, MAX_ROUTES) if isinstance(values, dict) else None


# ---- bounds, the same for writer and reader


def _report(values: Mapping[str, Any], limit: int) -> AgentReport:
    routes, left_out = _rows(values.get("routes"), _route), _count(values.get("routes_left_out"))
    call, block = values.get("oldest_call"), values.get("blocked_by")
    return AgentReport(
        version=_count(values.get("version")),
        slots=_count(values.get("slots")),
        running=_count(values.get("running")),
        draining=values.get("draining") is True,
        busy=_counts(values.get("busy"), limit),
        routes=routes[:limit],
        routes_left_out=left_out + len(routes[limit:]),
        lag=_counts(values.get("lag"), _TOPICS),
        oldest_call=_call(call) if isinstance(call, dict) else None,
        suspects=_rows(values.get("suspects"), _suspect)[:limit],
        reasons=_rows(values.get("reasons"), _reason)[:limit],
        types=_types(values.get("types"))[: MAX_TYPES if limit else 0],
        settings=_text(values.get("settings"), _WORD_CHARS),
        program=_text(values.get("program"), _WORD_CHARS),
        revision=_text(values.get("revision"), _WORD_CHARS),
        loop_age_s=_number(values.get("loop_age_s")),
        blocked_by=_block(block) if isinstance(block, dict) else None,
    )


def _reason(row: Mapping[str, Any]) -> Reason:
    usual_s = row.get("usual_s")
    return Reason(
        code=_text(row.get("code"), _WORD_CHARS),
        name=_text(row.get("name"), 4 * _NAME_CHARS),  # topics have longer names than routes
        error_class=_text(row.get("error_class"), _NAME_CHARS),
        text=_text(row.get("text"), _TEXT_CHARS),
        seconds=_number(row.get("seconds")),
        count=_count(row.get("count")),
        usual_s=None if usual_s is None else _number(usual_s),
        model=_text(row.get("model"), _BATCH_CHARS),
        address=_text(row.get("address"), _TEXT_CHARS),
        fallback=_text(row.get("fallback"), _NAME_CHARS),
        agents=_count(row.get("agents")),
        trouble=_text(row.get("trouble"), _TEXT_CHARS),
        kind=_text(row.get("kind"), _WORD_CHARS),
    )


def _route(row: Mapping[str, Any]) -> RouteFacts:
    allowed = row.get("allowed")
    return RouteFacts(
        name=_text(row.get("name"), _NAME_CHARS),
        state=_text(row.get("state"), _WORD_CHARS),
        error_class=_text(row.get("error_class"), _NAME_CHARS),
        since=_text(row.get("since"), _WORD_CHARS),
        open_in_s=_number(row.get("open_in_s")),
        allowed=None if allowed is None else _count(allowed),
    )


def _call(row: Mapping[str, Any]) -> CallReport:
    return CallReport(
        task=_count(row.get("task")),
        batch=_text(row.get("batch"), _BATCH_CHARS),
        key=_text(row.get("key"), _BATCH_CHARS),
        route=_text(row.get("route"), _NAME_CHARS),
        running_s=_number(row.get("running_s")),
    )


def _block(row: Mapping[str, Any]) -> BlockReport:
    return BlockReport(
        task=_count(row.get("task")),
        batch=_text(row.get("batch"), _BATCH_CHARS),
        key=_text(row.get("key"), _BATCH_CHARS),
        type=_text(row.get("type"), _NAME_CHARS),
        place=_text(row.get("place"), _TEXT_CHARS),
        blocked_s=_number(row.get("blocked_s")),
    )


def _suspect(row: Mapping[str, Any]) -> SuspectReport:
    return SuspectReport(
        task=_count(row.get("task")),
        batch=_text(row.get("batch"), _BATCH_CHARS),
        key=_text(row.get("key"), _BATCH_CHARS),
        losses=_count(row.get("losses")),
        alone=row.get("alone") is True,
    )


def _rows(value: object, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    rows = value if isinstance(value, list | tuple) else ()
    return tuple(read(row) for row in rows if isinstance(row, dict))


def _types(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list | tuple) else ()
    return tuple(name for name in names if isinstance(name, str) and is_name(name))


def _counts(value: object, most: int) -> dict[str, int]:
    """Return the largest counts by name."""
    counts = value if isinstance(value, dict) else {}
    pairs = [(_text(name, _NAME_CHARS), _count(count)) for name, count in counts.items()]
    return dict(sorted(pairs, key=lambda pair: -pair[1])[:most])


def _text(value: object, chars: int) -> str:
    """Return a text that JSON and every database can hold."""
    text = value[:chars] if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()


def _count(value: object) -> int:
    return int(_number(value))


def _number(value: object) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return 0
    return round(min(max(value, 0), _MAX_NUMBER), 3)
