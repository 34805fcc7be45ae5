"""`python -m bench limits`: how well a provider's limit is used.

Agents find all of these limits but one by themselves.

Agents on embedded parts, 64 slots each, call a rehearsal LLM through nginx and HAProxy, and llmock
from PyPI. Only what the limiters log counts, and the rehearsal LLM where it keeps the limit.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import orjson

from bench.limiters import PER_MINUTE, EvenNginx, HAProxy, InFlight, Limiter, Logged, Nginx
from bench.program import Program, until
from bench.site import Site, embedded, environment, llm
from bench.table import Figure
from bench.tasks import write_tasks
from bench.venvs import python_with
from tests.servers.process import free_port, listens

AnyLimiter = TypeVar("AnyLimiter", bound=Limiter)

SLOTS, LATENCY_S, OK = 64, 0.3, 200
LLMOCK = "llmock>=0.2.2,<0.3"
# Its own command names the folder in which the environment was made, not where it is now.
_RUN_LLMOCK = ("-c", "from llmock.cli import app; app()")
RATE_S, WINDOW_S, CHANCE_S = 180.0, 300.0, 60.0
QUICK_S = 20.0
NGINX_GOAL, HAPROXY_GOAL, TOLD_GOAL, CHANCE_GOAL = 90.0, 85.0, 85.0, 80.0
# The capacity that falls and returns.
CALL_S, HIGH, LOW, PHASE_S = 1.0, 200, 50, 40.0
NEW_LEVEL, COUNTED_S, LEVEL_GOAL_S, FAILING_GOAL = 0.9, 2.0, 10.0, 5.0


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Measure all limiters."""
    for agents in (1, 4):
        yield from _rate(folder, Nginx, agents, QUICK_S if quick else RATE_S, NGINX_GOAL)
    for agents in (1, 4):
        goal = HAPROXY_GOAL if agents == 1 else None
        yield from _rate(folder, HAProxy, agents, QUICK_S if quick else WINDOW_S, goal)
    yield from _rate(folder, EvenNginx, 1, QUICK_S if quick else RATE_S, TOLD_GOAL, told=True)
    for headers in ((), ("--no-limit-headers",)):
        yield from _rehearsal(folder, headers, QUICK_S if quick else RATE_S)
    yield from _chance(folder, QUICK_S if quick else CHANCE_S)
    yield from _capacity(folder, QUICK_S if quick else PHASE_S)
    yield from _llmock(folder, QUICK_S if quick else RATE_S)


def _rate(
    folder: Path,
    kind: type[Limiter],
    agents: int,
    lasts_s: float,
    goal: float | None,
    *,
    told: bool = False,
) -> Iterator[Figure]:
    """Measure how much of a limit of calls per minute is used; `told`: it is in the settings."""
    with _limited(folder, kind, str(LATENCY_S)) as (limiter, site), ExitStack() as stack:
        if told:
            settings = f'[llm]\nmodel = "rehearsal"\nrpm = {PER_MINUTE}\n'
            (site.folder / "docllm.toml").write_text(settings)
        stack.enter_context(_agents(site, limiter.url, agents))
        until(limiter.calls, 60, "the first call")
        time.sleep(lasts_s)
        calls = limiter.calls()
    what = f"{kind.name}, {PER_MINUTE} a minute, {agents} x {SLOTS} slots{', rpm set' * told}"
    yield from _used(what, site, calls, lasts_s, goal)


def _rehearsal(folder: Path, headers: Sequence[str], lasts_s: float) -> Iterator[Figure]:
    """Measure the same at the rehearsal LLM's own limit, with headers and without."""
    site = _loaded(folder)
    log = site.folder / "calls.jsonl"
    options = ("--latency", str(LATENCY_S), "--rpm", str(PER_MINUTE), "--log", str(log))
    with llm(site.folder, *options, *headers) as (url, _), _agents(site, url, 1):
        until(log.exists, 60, "the log")
        until(partial(_answers, log), 60, "the first answer")
        time.sleep(lasts_s)
        ends = [one for one in map(orjson.loads, log.open()) if one["event"] == "end"]
    calls = [Logged(one["at_s"], refused=one["status"] != OK, lasted_s=0.0) for one in ends]
    what = f"rehearsal LLM, {PER_MINUTE} a minute, {'no' if headers else 'with'} headers"
    yield from _used(what, site, calls, lasts_s, NGINX_GOAL)


def _used(
    what: str, site: Site, calls: Sequence[Logged], lasts_s: float, goal: float | None
) -> Iterator[Figure]:
    """Yield how much was used from the first call on."""
    found = [call for call in calls if call.at_s < calls[0].at_s + lasts_s]
    refused = sum(call.refused for call in found)
    passed = len(found) - refused
    use = 100 * passed / (lasts_s / 60 * PER_MINUTE)
    yield Figure(f"{what}: use", site.parts, use, "%", goal, at_least=True)
    yield Figure(f"{what}: refused / passed", site.parts, refused / max(1, passed), "")


def _chance(folder: Path, lasts_s: float) -> Iterator[Figure]:
    """Measure what 5 % of refusals cost that do not depend on the rate.

    Both agents run at the same time, so that a machine with other work slows both alike.
    """
    with ExitStack() as stack:
        logs = []
        for faults in ("", "429=0.05"):
            site = _loaded(folder)
            logs.append(site.folder / "calls.jsonl")
            options = ("--latency", "0.7-1.3", "--faults", faults, "--log", str(logs[-1]))
            url, _ = stack.enter_context(llm(site.folder, *options))
            stack.enter_context(_agents(site, url, 1))
        for log in logs:
            until(log.exists, 60, "the log")
            until(partial(_answers, log), 60, "the first answer")
        before = [_answers(log) for log in logs]
        time.sleep(lasts_s)
        answered = [_answers(log) - count for log, count in zip(logs, before, strict=True)]
    yield Figure(
        "5 % refused by chance: throughput",
        site.parts,
        100 * answered[1] / answered[0],
        "%",
        CHANCE_GOAL,
        at_least=True,
    )


def _answers(log: Path) -> int:
    return log.read_bytes().count(b'"status":200')


def _capacity(folder: Path, phase_s: float) -> Iterator[Figure]:
    """Measure how a fall of the capacity is followed, and its return."""
    with (
        _limited(folder, InFlight, f"{0.7 * CALL_S}-{1.3 * CALL_S}") as (limiter, site),
        _agents(site, limiter.url, 1, slots=2 * HIGH),
    ):
        until(limiter.calls, 60, "the first call")
        time.sleep(phase_s)
        changes_s = [time.time()]
        for most in (LOW, HIGH):
            limiter.allow(most)
            time.sleep(phase_s)
            changes_s.append(time.time())
        calls = limiter.calls()
    low, high = (
        [call for call in calls if from_s <= call.at_s < to_s]
        for from_s, to_s in pairwise(changes_s)
    )
    for what, part, most, from_s in (
        (f"{HIGH} calls at once become {LOW}", low, LOW, changes_s[0]),
        (f"{LOW} calls at once become {HIGH}", high, HIGH, changes_s[1]),
    ):
        level_s = _level_s(part, most, from_s)
        yield Figure(f"{what}: new level after", site.parts, level_s, "s", LEVEL_GOAL_S)
        failing = 100 * sum(call.refused for call in part) / max(1, len(part))
        yield Figure(f"{what}: refused", site.parts, failing, "%", FAILING_GOAL)


def _level_s(calls: list[Logged], most: int, from_s: float) -> float:
    """Return when `most` calls at once were used to 90 %, after `from_s`.

    That is so in two seconds which end at the time that is returned, if few calls were refused in
    them.
    """
    passed = [call for call in calls if not call.refused]
    each_s = sum(call.lasted_s for call in passed) / max(1, len(passed))
    usual = most / each_s * COUNTED_S
    for tenth in range(round(10 * COUNTED_S), 10_000):
        end_s = from_s + tenth / 10
        found = [call for call in calls if end_s - COUNTED_S <= call.at_s < end_s]
        used = sum(not call.refused for call in found)
        if NEW_LEVEL * usual <= used <= usual / NEW_LEVEL and len(found) <= used / NEW_LEVEL:
            return tenth / 10
    return float("inf")


def _llmock(folder: Path, lasts_s: float) -> Iterator[Figure]:
    """Ask llmock for its verdict of the client, after a run against its limit per minute."""
    python = python_with("llmock", LLMOCK)
    port, site = free_port(), _loaded(folder)
    url = f"http://127.0.0.1:{port}"
    options = ("--port", str(port), "--rpm", str(PER_MINUTE), "--latency-ms", "300")
    with Program(
        *_RUN_LLMOCK,
        "serve",
        *options,
        folder=site.folder,
        environ=environment(),
        name="llmock",
        python=python,
    ):
        until(lambda: listens(port), 60, "llmock")
        with _agents(site, f"{url}/v1", 1):
            time.sleep(lasts_s)
        verdict = _verdict(python, url)
    errors = {one["code"] for one in verdict["findings"] if one["severity"] == "error"}
    what = f"llmock, {PER_MINUTE} a minute"
    found = f": {', '.join(sorted(errors))}" if errors else ""
    yield Figure(f"{what}: errors of its verdict{found}", site.parts, verdict["errors"], "", 0)
    yield Figure(f"{what}: attempts / call", site.parts, verdict["attempts"] / verdict["calls"], "")


def _verdict(python: str, url: str) -> dict[str, Any]:
    report = subprocess.run(  # noqa: S603 - a fixed command
        [python, *_RUN_LLMOCK, "report", "--json", "--url", url],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return dict(json.loads(report.stdout))


@contextmanager
def _limited(
    folder: Path, kind: type[AnyLimiter], latency: str
) -> Iterator[tuple[AnyLimiter, Site]]:
    site = _loaded(folder)
    with llm(site.folder, "--latency", latency) as (url, _):
        upstream = url.removeprefix("http://").removesuffix("/v1")
        with kind(folder=site.folder / kind.name, upstream=upstream) as limiter:
            yield limiter, site


@contextmanager
def _agents(site: Site, url: str, count: int, slots: int = SLOTS) -> Iterator[None]:
    """Run agents."""
    programs = [site.agent(url, "--slots", str(slots)) for _ in range(count)]
    try:
        yield
    finally:
        for one in programs:
            one.kill()


def _loaded(folder: Path) -> Site:
    site = embedded(folder)
    site.load(write_tasks(site.folder / "tasks.jsonl", 40_000, 300))
    return site
