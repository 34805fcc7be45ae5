"""What an agent's metrics cost: its CPU a task with and without them, side by side.

With metrics, the agent serves them and is scraped every 5 s. Runs alternate (off, on, on, off, and
so on), so that other load on the machine meets both alike, and pairs of neighbours are compared.
The server counts the statements that write.

Only the middle of a run counts, since start-up takes as much CPU as thousands of tasks. On a busy
machine two runs still differ by more than metrics cost. So what these do for each task is also
measured alone, in a loop, and compared with the agent's CPU in the same session.
"""

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any
from urllib.request import urlopen

from sqlalchemy import Connection, func, select, text

from bench.program import BenchError
from bench.site import Site, Sites, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks
from docllm.agent.execution.observability.observed_ledger import ObservedLedger
from docllm.agent.ports import Reply
from docllm.agent.quota.provider_headers import left
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.schemas.ledger.tables import task_result
from docllm.schemas.runtime.clock import SystemClock
from tests.servers.process import free_port

LINE_BYTES, SLOTS = 2048, 256
EVERY_S = 5.0
GOAL_PERCENT = 2.0
CHECK_EVERY_S = 0.25
PAGES = 100
PAIRS = 6
GROUP = 8  # tasks in a claim and in a settle; busy agents have more
_WRITES = text(
    "SELECT SUM(variable_value) FROM information_schema.global_status "
    "WHERE variable_name IN ('COM_INSERT', 'COM_UPDATE', 'COM_DELETE', 'COM_REPLACE')"
)


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run used for each task: CPU, statements that write; and how often it was scraped."""

    cpu_ms: float
    writes: float
    scrapes: int


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run agents with and without metrics, each until a batch of its own is done."""
    site = sites.on_kafka()
    count, pairs = (2_000, 1) if quick else (10_000, PAIRS)
    with llm(site.folder, "--latency", "0") as (url, _):
        found: dict[bool, list[_Run]] = {False: [], True: []}
        for number in range(2 * pairs):
            path = site.folder / f"tasks-{number}.jsonl"
            site.load(write_tasks(path, count, LINE_BYTES, **answer_of_1_kb()))
            shown = number % 4 in {1, 2}
            found[shown].append(_run(site, url, (number * count, count), shown=shown))
    if not all(run.scrapes for run in found[True]):
        raise BenchError("an agent with metrics was not scraped")
    cpu_ms = {shown: [run.cpu_ms for run in runs] for shown, runs in found.items()}
    ratios = [on / off for off, on in zip(cpu_ms[False], cpu_ms[True], strict=True)]
    writes = {shown: mean(run.writes for run in runs) for shown, runs in found.items()}
    goal = None if quick else GOAL_PERCENT
    parts, own_ms = site.parts, _own_ms(10_000 if quick else 100_000)
    yield Figure("agent without metrics: CPU a task", parts, median(cpu_ms[False]), "ms")
    yield Figure("agent with metrics: CPU a task", parts, median(cpu_ms[True]), "ms")
    own_percent = 100 * own_ms / median(cpu_ms[False])
    yield Figure("metrics alone: CPU a task", "this process", 1000 * own_ms, "us")
    yield Figure("metrics alone: CPU a scrape", "this process", _scrape_ms(), "ms")
    yield Figure("metrics alone / agent without", parts, own_percent, "%", goal)
    yield Figure("metrics: more CPU, median of pairs", parts, 100 * median(ratios) - 100, "%", goal)
    yield Figure("metrics: more CPU, all runs", parts, _more_percent(cpu_ms), "%", goal)
    yield Figure("agent without metrics: writes a task", parts, writes[False], "")
    yield Figure("agent with metrics: writes a task", parts, writes[True], "")


def _more_percent(cpu_ms: dict[bool, list[float]]) -> float:
    return 100 * sum(cpu_ms[True]) / sum(cpu_ms[False]) - 100


def _run(site: Site, url: str, tasks: tuple[int, int], *, shown: bool) -> _Run:
    """Run an agent until all is done. `tasks`: how many have a result before, and how many come."""
    port, (before, count) = free_port(), tasks
    environ = {"DOCLLM_LLM_BASE_URL": url, "DOCLLM_LLM_MODEL": "rehearsal"}
    if shown:
        environ["DOCLLM_AGENT_HTTP"] = f"127.0.0.1:{port}"
    written = site.ask(_writes)
    marks: list[tuple[int, float]] = []  # results and CPU, while between a tenth and all are done
    arguments = ("agent", "--group", site.group, "--until-done", "--slots", str(SLOTS))
    with site.start(*arguments, environ=environ) as program, _scraped(port, on=shown) as scrapes:
        while not program.ended():
            done = site.ask(_results) - before
            if count / 10 <= done < count and not program.ended():
                marks.append((done, _cpu_of(program.pid)))
            time.sleep(CHECK_EVERY_S)
        program.wait(0)
    (first, first_s), (last, last_s) = marks[0], marks[-1]
    writes = (site.ask(_writes) - written) / count
    return _Run(1000 * (last_s - first_s) / (last - first), writes, len(scrapes))


def _results(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(task_result)).scalar() or 0)


def _cpu_of(pid: int) -> float:
    """Return the user and system time of a process so far, in seconds."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _writes(connection: Connection) -> int:
    return int(connection.execute(_WRITES).scalar() or 0)


@contextmanager
def _scraped(port: int, *, on: bool) -> Iterator[list[int]]:
    """Scrape an agent every few seconds while it runs; yield the sizes of its pages."""
    pages: list[int] = []
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(EVERY_S if pages else 0.2):
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                pages.append(len(page.read()))

    thread = threading.Thread(target=scrape, daemon=True)
    if on:
        thread.start()
    try:
        yield pages
    finally:
        over.set()
        if on:
            thread.join()


class _Port:
    """An LLM and a ledger that do nothing, of which all is measured that metrics add."""

    bodies = overrides = relieve = join_look = quarantine = None
    answer = Reply(200, {"content-type": "application/json", "x-request-id": "1"}, b"")

    async def complete(self, _call: object) -> Reply:
        return self.answer

    async def ask(self, records: Sequence[Any]) -> dict[int, Any]:
        return {number: (None, None) for number, _ in enumerate(records)}

    async def claim(self, records: Sequence[Any], *_: object, **__: object) -> dict[int, Any]:
        return {number: (None, None) for number, _ in enumerate(records)}

    async def settle(self, _settlements: object) -> tuple[list[Any], list[Any]]:
        return [], []


class _Measured:
    """An LLM of whose calls all is told that an attempt tells the metrics."""

    def __init__(self, llm: _Port, metrics: AgentMetrics) -> None:
        self._llm = llm
        self._metrics = metrics

    async def complete(self, call: object) -> Reply:
        reply = await self._llm.complete(call)
        self._metrics.called("", 1.0)
        left(reply.headers)
        return reply


def _own_ms(count: int) -> float:
    """Return the CPU that metrics take for a task, with groups of `GROUP` tasks."""
    port: Any = _Port()
    metrics = AgentMetrics(group="g", routes=(), counters=(), gauges=())
    clock = SystemClock()
    ledger: Any = ObservedLedger(port, metrics=metrics, clock=clock)
    bare = asyncio.run(_cpu_s(port, port, count))
    measured = asyncio.run(_cpu_s(_Measured(port, metrics), ledger, count))
    return 1000 * (measured - bare) / count


def _scrape_ms() -> float:
    """Return the CPU that a page takes."""
    metrics = AgentMetrics(group="g", routes=("a", "b"), counters=(), gauges=())
    for route in ("a", "b", ""):
        metrics.called(route, 1.0)
    began_s = time.process_time()
    for _ in range(PAGES):
        metrics.text()
    return 1000 * (time.process_time() - began_s) / PAGES


async def _cpu_s(llm_port: Any, ledger: Any, count: int) -> float:
    began_s = time.process_time()
    group = range(GROUP)
    for number in range(count):
        await llm_port.complete(None)
        if number % GROUP == 0:
            await ledger.claim(group, 1, 1.0)
            await ledger.settle(group)
    return time.process_time() - began_s
