"""How long the tasks of a killed agent wait for their next call, with default settings.

Two agents work, and one is killed with SIGKILL. The rehearsal LLM's log shows which calls broke off
and when each task was called again. Then a new agent replaces the dead one, and the other agent is
killed.
"""

import random
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from bench.program import Program, until
from bench.site import Site, Sites, llm
from bench.table import Figure
from bench.tasks import write_tasks

CALL_S, DEFAULT_SLOTS, HEARTBEAT_S = 1, 64, 3
LINE_BYTES, TASKS_A_ROUND = 300, 6000
HALF_GOAL_S, MAX_GOAL_S = 13.0, 15.0


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Kill agents, on each kind of parts."""
    for site in sites.both():
        rounds = 1 if quick else 5
        waits_s = _kills(site, rounds)
        goals = (None, None) if site.embedded else (HALF_GOAL_S, MAX_GOAL_S)
        what = f"kill -9 to the next call, {rounds} kills"
        yield Figure(f"{what}: p50", site.parts, statistics.median(waits_s), "s", goals[0])
        yield Figure(
            f"{what}: p95", site.parts, statistics.quantiles(waits_s, n=20)[-1], "s", goals[1]
        )


def _kills(site: Site, rounds: int) -> list[float]:
    log = site.folder / "calls.jsonl"
    site.load(write_tasks(site.folder / "tasks.jsonl", rounds * TASKS_A_ROUND, LINE_BYTES))
    waits_s: list[float] = []
    with llm(site.folder, "--latency", str(CALL_S), "--log", str(log)) as (url, _):
        agents = [site.agent(url), site.agent(url)]
        try:
            for _ in range(rounds):
                until(lambda: _in_flight(log) == 2 * DEFAULT_SLOTS, 120, "both agents to be busy")
                # At any moment between two heartbeats.
                time.sleep(random.uniform(0, HEARTBEAT_S))  # noqa: S311
                waits_s += _kill(agents.pop(0), log)
                agents.append(site.agent(url))
        finally:
            for agent in agents:
                agent.kill()
    return waits_s


def _kill(agent: Program, log: Path) -> list[float]:
    """Kill an agent; return how long each of its calls waited for the next one, in seconds."""
    killed_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    agent.kill()
    until(lambda: _broken(log, killed_s), 30, "the calls of the dead agent to break off")
    again: dict[str, float] = {}

    def all_again() -> bool:
        again.update(_again(log, killed_s))
        return len(again) == len(_broken(log, killed_s))

    until(all_again, 120, "the tasks of the dead agent to be called again")
    return [at_s - killed_s for at_s in again.values()]


def _events(log: Path) -> Iterator[Mapping[str, Any]]:
    whole, _, _ = log.read_bytes().rpartition(b"\n")  # the last line may be half written
    return (orjson.loads(line) for line in whole.splitlines())


def _in_flight(log: Path) -> int:
    return sum(1 if event["event"] == "start" else -1 for event in _events(log))


def _broken(log: Path, killed_s: float) -> set[str]:
    return {
        event["id"]
        for event in _events(log)
        if event["event"] == "end" and event["status"] == 0 and event["boot_s"] >= killed_s
    }


def _again(log: Path, killed_s: float) -> dict[str, float]:
    broken = _broken(log, killed_s)
    found: dict[str, float] = {}
    for event in _events(log):
        if event["event"] == "start" and event["id"] in broken and event["boot_s"] > killed_s:
            found.setdefault(event["id"], event["boot_s"])
    return found
