"""`python -m bench weight`: what a plain task costs an agent.

A plain task is a summary of 400 words and uses no feature. An agent counts between two numbers of
settled tasks, so that its start drops out: calls of all functions on the event loop's thread,
statements, and memory blocks for each call in flight. A busy machine makes pages smaller and lets
duties run more often, which adds some calls and statements. *Steps* leave that out: the calls of
docllm's own functions for each task, each function's rounded to a whole number.

Then each feature is configured and in use by tasks that wait in the same agent. What a plain task
costs more beside them is what the feature costs it, in steps. Where that is too much, the functions
that are called more often are named.

`weight.toml` has the bounds. `--quick` counts fewer tasks, needs no servers, and holds only the
bounds of steps and blocks; it weighs each feature alone only if all together cost too much.
"""

import secrets
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import orjson

from bench.counted_agent import run_to_marks, run_with_blocks
from bench.program import Child, Fork, until
from bench.site import Site, Sites, embedded, llm
from bench.table import Figure
from bench.tasks import write_lines, write_plain
from bench.waiting_features import HANDLERS, Feature, features
from docllm.agent.cli import main as _agent  # noqa: F401 - loaded once, before the forks
from docllm.producer.__main__ import main as produce
from docllm.producer.cli.load import command as _load  # noqa: F401 - the same
from tests.servers import Kafka, MariaDB
from tests.servers.process import free_port

BOUNDS = Path(__file__).with_name("weight.toml")
SLOTS, CALL_S, SILENT_S = 128, 0.02, 36_000
MARKS, QUICK_MARKS = (2_000, 6_000), (200, 600)
MORE = SLOTS  # tasks beyond the last mark, so that no slot is free before it
WAITING = 100  # tasks that use a feature
TIMES = 3  # so often at most something is counted that takes too many steps
NAMED = 12  # functions that are named where a feature costs too much
IN_FLIGHT = 1_000
OWN = ("agent/", "producer/", "schemas/")


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls by function, and statements by verb, each for one plain task."""

    calls_of: Mapping[str, float]
    statements_of: Mapping[str, float]

    @property
    def calls(self) -> float:
        """Return the calls of all functions."""
        return sum(self.calls_of.values())

    @property
    def steps(self) -> int:
        """Return the calls of docllm's own functions that are made for each task."""
        own = (count for name, count in self.calls_of.items() if name.startswith(OWN))
        return sum(round(count) for count in own)

    @property
    def statements(self) -> float:
        """Return the statements, commits included."""
        return sum(self.statements_of.values())

    def steps_beyond(self, fewer: "Counts") -> Mapping[str, int]:
        """Return the steps of each function that makes more of them here, the most first."""
        more = {
            name: round(count) - round(fewer.calls_of.get(name, 0))
            for name, count in self.calls_of.items()
            if name.startswith(OWN)
        }
        return {
            name: more[name]
            for name in sorted(more, key=lambda name: -more[name])
            if more[name] > 0
        }


def plain(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Count a plain task alone."""
    with _weighing(folder, quick=quick) as (weighing, bounds):
        yield from _of_plain(
            weighing, bounds, weighing.least({}, bounds.most("steps")), hold=not quick
        )


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Count a plain task alone, beside the tasks of all features, and beside those of each."""
    with _weighing(folder, quick=quick) as (weighing, bounds):
        alone = weighing.least({}, bounds.most("steps"))
        yield from _of_plain(weighing, bounds, alone, hold=not quick)
        beside = partial(_beside, weighing, bounds, alone)
        yield (together := beside("beside_all", "all features", features()))
        if not (quick and together.reached):
            for name, feature in features().items():
                yield beside("beside_one", name, {name: feature})
        if not quick:
            yield _on_servers(weighing, bounds)


@contextmanager
def _weighing(folder: Path, *, quick: bool) -> Iterator[tuple["Weighing", "_Bounds"]]:
    """Start a server that answers and one that is silent."""
    with (
        llm(folder, "--latency", str(CALL_S)) as (answering, _),
        llm(folder, "--latency", str(SILENT_S)) as (silent, _),
    ):
        bounds = _Bounds(tomllib.loads(BOUNDS.read_text())["python"])
        yield Weighing(folder, answering, silent, QUICK_MARKS if quick else MARKS), bounds


def _of_plain(
    weighing: "Weighing", bounds: "_Bounds", counts: Counts, *, hold: bool
) -> Iterator[Figure]:
    yield bounds.figure("steps", "plain task: steps", counts.steps)
    yield bounds.figure("calls", "plain task: calls", counts.calls, hold=hold)
    yield bounds.figure("statements", "plain task: statements", counts.statements, hold=hold)
    yield bounds.figure("blocks", "plain task in flight: memory blocks", weighing.blocks())


def _beside(
    weighing: "Weighing",
    bounds: "_Bounds",
    alone: Counts,
    name: str,
    what: str,
    in_use: Mapping[str, Feature],
) -> Figure:
    """Count a plain task beside these features; name the functions if it takes too many steps."""
    counts = weighing.least(in_use, alone.steps + bounds.most(name))
    figure = bounds.figure(name, f"beside {what}: more steps", counts.steps - alone.steps)
    if not figure.reached:
        for function, steps in islice(counts.steps_beyond(alone).items(), NAMED):
            sys.stderr.write(f"beside {what}: +{steps} {function}\n")
    return figure


def _on_servers(weighing: "Weighing", bounds: "_Bounds") -> Figure:
    folder = weighing.folder
    with Kafka(folder=folder / "kafka") as kafka, MariaDB(folder=folder / "mariadb") as mariadb:
        site = Sites(folder=folder, kafka=kafka, mariadb=mariadb).on_kafka()
        counts = weighing.count({}, site)
    return bounds.figure("statements", "plain task: statements", counts.statements, site.parts)


class _Bounds:
    """The bounds for this version of Python: its own, or else those of the newest one known."""

    def __init__(self, versions: Mapping[str, Mapping[str, float]]) -> None:
        own = ".".join(map(str, sys.version_info[:2]))
        self._bounds = versions.get(own) or versions[max(versions)]

    def most(self, name: str) -> float:
        """Return the bound of this name."""
        return self._bounds[name]

    def figure(
        self, name: str, what: str, value: float, parts: str = "embedded", *, hold: bool = True
    ) -> Figure:
        """Return a figure; its bound is the goal if it has one that this run can `hold`."""
        return Figure(what, parts, value, "", self._bounds.get(name) if hold else None)


@dataclass(frozen=True, slots=True)
class Weighing:
    """Counts agents, on embedded parts if not said otherwise.

    Two LLM servers run: one that answers, and one that is silent.
    """

    folder: Path
    answering: str
    silent: str
    marks: tuple[int, int]

    def least(self, in_use: Mapping[str, Feature], enough: float) -> Counts:
        """Count until the steps are few enough, at most some times; other load only adds steps."""
        counts = self.count(in_use)
        for _ in range(TIMES - 1):
            if counts.steps > enough:
                counts = min(counts, self.count(in_use), key=lambda counts: counts.steps)
        return counts

    def count(self, in_use: Mapping[str, Feature], empty: Site | None = None) -> Counts:
        """Count a plain task beside tasks that use these features and wait."""
        site = self._site(in_use.values(), self.answering, empty)
        if in_use:
            lines = _waiting_lines(site, in_use.values())
            _load_all(site, write_lines(site.folder / "waiting.jsonl", lines))
        _load_all(site, write_plain(site.folder / "plain.jsonl", self.marks[1] + MORE))
        report = site.folder / "counts.json"
        with _fork(site, partial(run_to_marks, _options(site, SLOTS), self.marks, report)) as agent:
            agent.wait(600)
        first, last = orjson.loads(report.read_bytes())
        tasks = self.marks[1] - self.marks[0]
        calls, statements = (
            {name: (count - first[what].get(name, 0)) / tasks for name, count in last[what].items()}
            for what in ("calls", "statements")
        )
        return Counts(calls, statements)

    def blocks(self) -> float:
        """Return how many blocks of memory each task in flight adds to an idle agent."""
        with llm(self.folder, "--latency", str(SILENT_S)) as (url, _):
            site = self._site((), url)
            run = partial(run_with_blocks, _options(site, IN_FLIGHT), site.folder)
            with _fork(site, run) as agent:
                until(partial(_is_ready, site), 120, f"the agent: {agent.said}")
                idle = _blocks(site, "idle")
                _load_all(site, write_plain(site.folder / "plain.jsonl", IN_FLIGHT))
                until(lambda: _in_flight(url) == IN_FLIGHT, 120, f"the calls: {agent.said}")
                return (_blocks(site, "full") - idle) / IN_FLIGHT

    def _site(self, in_use: Iterable[Feature], url: str, empty: Site | None = None) -> Site:
        """Make an installation that calls the server at `url`, with the features' settings."""
        site = empty or embedded(self.folder)
        port = free_port()
        environ = {
            **site.environ,
            "DOCLLM_LLM_BASE_URL": url,
            "DOCLLM_LLM_MODEL": "rehearsal",
            "DOCLLM_AGENT_HTTP": f"127.0.0.1:{port}",
        }
        settings = "".join(
            feature.settings.replace("{name}", f"feature-{number}")
            for number, feature in enumerate(in_use)
        )
        settings = settings.replace("{silent}", self.silent).replace("{folder}", str(site.folder))
        (site.folder / "docllm.toml").write_text(settings)
        (site.folder / "waiting_handlers.py").write_text(HANDLERS)
        (site.folder / "document.txt").write_text("The harvest of this year.")
        return replace(site, environ=environ)


def _waiting_lines(site: Site, in_use: Iterable[Feature]) -> Iterator[bytes]:
    """Yield lines of tasks that use these features; their keys do not begin as plain ones do."""
    place = site.folder.as_uri().encode()
    for number, feature in enumerate(in_use):
        name = f"feature-{number}"
        for task in range(WAITING):
            line = {
                "id": f"{name}-{task}",
                "prompt": "Summarize: {document}",
                "input": {"text": "The harvest of this year."},
                **feature.line,
            }
            text = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
            yield text.replace(b"{name}", name.encode()).replace(b"{folder}", place)


def _options(site: Site, slots: int) -> Sequence[str]:
    return ("--group", site.group, "--slots", str(slots))


def _load_all(site: Site, path: Path) -> None:
    with _fork(site, lambda: sys.exit(produce(["load", str(path), "--group", site.group]))) as load:
        load.wait(300)


def _fork(site: Site, run: Callable[[], object]) -> Child:
    name = f"fork-{secrets.token_hex(3)}"
    return Fork(run, folder=site.folder, environ=site.environ, name=name)


def _is_ready(site: Site) -> bool:
    with suppress(OSError):
        urllib.request.urlopen(f"http://{site.environ['DOCLLM_AGENT_HTTP']}/readyz", timeout=5)
        return True
    return False


def _blocks(site: Site, name: str) -> int:
    """Return the blocks of memory that the agent has now."""
    path = site.folder / f"{name}.ask"
    path.touch()
    answer = path.with_suffix(".blocks")
    until(answer.exists, 30, "the agent's memory blocks")
    return int(answer.read_text())


def _in_flight(url: str) -> int:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=30) as reply:  # noqa: S310 - ours
        return int(orjson.loads(reply.read())["in_flight"])
