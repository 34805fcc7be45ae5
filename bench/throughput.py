"""What the agent costs when the LLM answers at once: its CPU per task and its rate.

The rate is for this machine with everything on it. Start-up is measured on the empty group and
subtracted from the CPU, because it says nothing about a million tasks.
"""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, func, select

from bench.program import BenchError, Program
from bench.site import Site, Sites, environment, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks
from docllm.schemas.ledger.tables import task_result

LINE_BYTES, SLOTS = 2048, 256
CPU_GOAL_MS, RATE_GOAL = 0.4, 3300.0


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run one agent until all is done, on each kind of parts, with the bare loop beside it."""
    bare = _bare_loop(sites.folder, 3_000 if quick else 20_000)
    yield Figure("bare loop: CPU a task, its thread", "pyreqwest", bare["thread_ms"], "ms")
    yield Figure("bare loop: CPU a task", "pyreqwest", bare["cpu_ms"], "ms")
    yield Figure("bare loop: tasks a second", "pyreqwest", bare["per_s"], "1/s")
    for site in sites.both():
        full = 20_000 if site.embedded else 60_000
        yield from _agent(site, full // 10 if quick else full, bare["cpu_ms"])


def _bare_loop(folder: Path, count: int) -> dict[str, float]:
    path = write_tasks(folder / "bare.jsonl", count, LINE_BYTES, **answer_of_1_kb())
    with llm(folder, "--latency", "0") as (url, _):
        arguments = ("bench.bare_loop", url, str(path), str(SLOTS))
        with Program(*arguments, folder=folder, environ=environment(), name="bare") as loop:
            loop.wait(900)
            return dict(json.loads(loop.said))


def _agent(site: Site, count: int, bare_ms: float) -> Iterator[Figure]:
    with llm(site.folder, "--latency", "0") as (url, server):
        start_up = site.agent(url, "--until-done").wait(60)
        site.load(write_tasks(site.folder / "tasks.jsonl", count, LINE_BYTES, **answer_of_1_kb()))
        used = site.agent(url, "--until-done", "--slots", str(SLOTS)).wait(900)
        served = server.stop()
    cpu_ms = 1000 * (used.cpu_s - start_up.cpu_s) / count
    cpu_goal, rate_goal = (None, None) if site.embedded else (CPU_GOAL_MS, RATE_GOAL)
    yield Figure("agent: CPU a task", site.parts, cpu_ms, "ms", cpu_goal)
    yield Figure("agent: CPU a task / bare loop", site.parts, cpu_ms / bare_ms, "x")
    yield Figure(
        "agent: tasks a second",
        site.parts,
        count / span(site, count).total_seconds(),
        "1/s",
        rate_goal,
        at_least=True,
    )
    yield Figure("agent: memory", site.parts, used.memory_mb, "MB")
    yield Figure("rehearsal LLM: CPU a call", site.parts, 1000 * served.cpu_s / count, "ms")


def span(site: Site, count: int) -> timedelta:
    """Return the time from the first result to the last, by the database's clock.

    Raises BenchError unless there are `count` results.
    """

    def read(connection: Connection) -> tuple[int, timedelta]:
        query = select(
            func.count(), func.min(task_result.c.created_at), func.max(task_result.c.created_at)
        )
        found, first, last = connection.execute(query).one()
        return found, last - first

    found, took = site.ask(read)
    if found != count:
        raise BenchError(f"{found} of {count} tasks have a result")
    return took
