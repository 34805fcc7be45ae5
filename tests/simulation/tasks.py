"""The tasks of a run: lines whose id decides their fate."""

import random
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import orjson

from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.config import DEFAULT_ROUTE
from docllm.schemas.task.line.parsing import parse
from tests.simulation.eventloop import EPOCH_S
from tests.simulation.machine import HANDLED, LATER, SLOW, SPARE
from tests.simulation.mishaps import MISJUDGED, UNREADABLE
from tests.simulation.outputs import OUTPUTS

WRITTEN = 0.8  # of the tasks of a run with outputs
BOUNDED = 0.4  # of the tasks of a run with fallbacks
FUTURE = "future"  # of a format that only an update understands
ANEW = "Once more: {document}"  # the prompt with which some replays let tasks run
OF_THE_INBOX = (FUTURE, UNREADABLE)  # quarantined until then
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def lines(
    count: int,
    rng: random.Random,
    kinds: Mapping[str, int],
    models: Sequence[str],
    horizon_s: float,
    prefix: str = "",
) -> list[ValidLine]:
    """Return so many lines."""
    drawn = rng.choices(list(kinds), list(kinds.values()), k=count)
    return [
        _line(number, f"{prefix}{kind}-{number}", kind, rng, models, horizon_s)
        for number, kind in enumerate(drawn)
    ]


def bounded(lines: Sequence[ValidLine], seed: int) -> list[ValidLine]:
    """Return the lines; some tasks may not leave their route, or go to one fallback alone."""
    rng = random.Random(f"bounds {seed}")  # noqa: S311 - a seed must give the same lines
    return [_within(line, rng) if rng.random() < BOUNDED else line for line in lines]


def written(lines: Sequence[ValidLine], seed: int) -> list[ValidLine]:
    """Return the lines; the results of most tasks go to the object store, half to own objects."""
    rng = random.Random(f"written {seed}")  # noqa: S311 - a seed must give the same lines
    return [
        _with(line, output_uri=rng.choice((OUTPUTS, f"{OUTPUTS}{rng.getrandbits(64):x}")))
        if rng.random() < WRITTEN
        else line
        for line in lines
    ]


def placed(
    lines: Sequence[ValidLine], priorities: Sequence[int], tenants: Collection[str], seed: str
) -> list[ValidLine]:
    """Return the lines with priorities and tenants; half of the tasks are of the first tenant."""
    rng = random.Random(f"turns {seed}")  # noqa: S311 - a seed must give the same lines
    names = [*tenants, *[next(iter(tenants))] * (len(tenants) - 1)]
    return [
        _with(line, priority=rng.choice(priorities), tenant=rng.choice(names)) for line in lines
    ]


def _with(line: ValidLine, **fields: object) -> ValidLine:
    value = orjson.dumps(orjson.loads(line.value) | fields)
    return ValidLine(line.line, line.key, value, parse(value))


def _within(line: ValidLine, rng: random.Random) -> ValidLine:
    own = line.task.model or DEFAULT_ROUTE
    routes = rng.choice(([own], [own, SPARE], [own, SLOW]))
    return _with(line, routes_allowed=routes)


def _line(
    number: int, key: str, kind: str, rng: random.Random, models: Sequence[str], horizon_s: float
) -> ValidLine:
    line = {"id": key, "prompt": "Sum {document}", "input": {"text": f"text {number}"}}
    if kind in {*HANDLED, LATER}:
        line["type"] = kind
    if kind == "schema":
        line["schema"] = _SCHEMA
    if kind == MISJUDGED and rng.random() < 0.5:
        line["schema"] = {"title": MISJUDGED}
    if kind == "deadline":
        line["deadline"] = datetime.fromtimestamp(
            EPOCH_S + rng.uniform(1, 2 * horizon_s), UTC
        ).isoformat()
    if kind == "timed":
        at_s = EPOCH_S + random.Random(f"time of {key}").uniform(0, horizon_s)  # noqa: S311 - as above
        line["not_before"] = datetime.fromtimestamp(at_s, UTC).isoformat()
    if model := rng.choice(models):
        line["model"] = model
    value = orjson.dumps(line)
    return ValidLine(number + 1, key, value, parse(value))
