"""Tasks a second and CPU a task when the LLM answers at once, beside what others need.

A bare loop and a thread pool make the same calls, and keep nothing. FastStream's batch consumer, in
two processes, keeps results on Kafka. All run on this machine with everything on it. An agent's
start-up is measured on the empty group and subtracted from its CPU.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import Connection, func, select

from bench.program import BenchError, Program, Used, until
from bench.site import Site, Sites, environment, llm
from bench.table import Figure
from bench.tasks import answer_of_1_kb, write_tasks
from bench.venvs import python_with
from docllm.schemas.ledger.tables import task_result

LINE_BYTES, SLOTS = 2048, 256
CPU_GOAL_MS, RATE_GOAL = 0.4, 3300.0
THREADS = 64  # of the thread pool
CONSUMERS, PARTITIONS = 2, 4  # of FastStream
MOST_AGENTS = 3
FASTSTREAM = ("faststream[confluent]>=0.7,<0.8", "pyreqwest", "uvloop", "orjson")
HERE = Path(__file__).parent
_BATCH = re.compile(r"^([0-9.]++) ([0-9.]++) ([0-9]++)$", re.MULTILINE)


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run the peers, then agents until all is done, on each kind of parts."""
    bare = _bare_loop(sites.folder, 3_000 if quick else 20_000)
    yield Figure("bare loop: CPU a task, its thread", "pyreqwest", bare["thread_ms"], "ms")
    yield Figure("bare loop: CPU a task", "pyreqwest", bare["cpu_ms"], "ms")
    yield Figure("bare loop: tasks a second", "pyreqwest", bare["per_s"], "1/s")
    pool_per_s = _thread_pool_per_s(sites.folder, 1_000 if quick else 5_000)
    yield Figure("thread pool: tasks a second", "urllib", pool_per_s, "1/s")
    faststream_per_s = None
    try:
        faststream_per_s = _faststream_per_s(sites, 6_000 if quick else 40_000)
        yield Figure("FastStream batch: tasks a second", "Kafka", faststream_per_s, "1/s")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"without FastStream, which could not be installed: {error}\n")
    for site in sites.both():
        full = 20_000 if site.embedded else 60_000
        count = full // 10 if quick else full
        yield from _one_agent(site, count, bare)
    yield from _agents(sites, 6_000 if quick else 60_000, faststream_per_s, quick=quick)


def _bare_loop(folder: Path, count: int) -> dict[str, float]:
    path = write_tasks(folder / "bare.jsonl", count, LINE_BYTES, **answer_of_1_kb())
    with llm(folder, "--latency", "0") as (url, _):
        arguments = ("bench.bare_loop", url, str(path), str(SLOTS))
        with Program(*arguments, folder=folder, environ=environment(), name="bare") as loop:
            loop.wait(900)
            return dict(json.loads(loop.said))


def _thread_pool_per_s(folder: Path, count: int) -> float:
    log = folder / "pool-calls.jsonl"
    with llm(folder, "--latency", "0", "--log", str(log)) as (url, _):
        arguments = (url, str(count), str(THREADS), str(folder / "pool.jsonl"))
        with _python(sys.executable, "peer_loop.py", *arguments, folder=folder) as pool:
            pool.wait(900)
    ends = [float(json.loads(line)["boot_s"]) for line in log.read_text().splitlines()]
    return count / (max(ends) - min(ends))


def _faststream_per_s(sites: Sites, count: int) -> float:
    """Return the rate of FastStream's consumers, from the first batch's start to the last's end."""
    python = python_with("faststream", *FASTSTREAM)
    folder, topic = sites.folder, "faststream"
    admin = AdminClient({"bootstrap.servers": sites.bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (topic, f"{topic}-results")]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer(
        {"bootstrap.servers": sites.bootstrap, "queue.buffering.max.messages": count + 1}
    )
    path = write_tasks(folder / "faststream.jsonl", count, LINE_BYTES, **answer_of_1_kb())
    for number, line in enumerate(path.read_bytes().splitlines()):
        producer.produce(topic, line, partition=number % PARTITIONS)
    producer.flush(120)
    with llm(folder, "--latency", "0") as (url, _), ExitStack() as stack:
        arguments = (sites.bootstrap, topic, url)
        consumers = [
            stack.enter_context(_python(python, "peer_faststream.py", *arguments, folder=folder))
            for _ in range(CONSUMERS)
        ]

        def batches() -> list[list[float]]:
            printed = "".join(consumer.said for consumer in consumers)
            return [list(map(float, line.groups())) for line in _BATCH.finditer(printed)]

        until(lambda: sum(size for _, _, size in batches()) >= count, 600, "FastStream's batches")
        began_s = min(began_s for began_s, _, _ in batches())
        return count / (max(ended_s for _, ended_s, _ in batches()) - began_s)


def _python(python: str, file: str, *arguments: str, folder: Path) -> Program:
    environ = environment() | {"PYTHONPATH": ""}
    name = f"{file.removesuffix('.py')}-{len(list(folder.glob('*.out')))}"
    return Program(
        str(HERE / file), *arguments, folder=folder, environ=environ, name=name, python=python
    )


def _one_agent(site: Site, count: int, bare: dict[str, float]) -> Iterator[Figure]:
    with llm(site.folder, "--latency", "0") as (url, server):
        idle = site.agent(url, "--until-done").wait(60)
        (used,), per_s = _run(site, url, count, agents=1)
        served = server.stop()
    cpu_ms = 1000 * (used.cpu_s - idle.cpu_s) / count
    thread_ms = 1000 * (used.thread_s - idle.thread_s) / count
    goal = None if site.embedded else CPU_GOAL_MS
    yield Figure("agent: CPU a task", site.parts, cpu_ms, "ms", goal)
    yield Figure("agent: CPU a task / bare loop", site.parts, cpu_ms / bare["cpu_ms"], "x")
    yield Figure("agent: CPU a task, event loop's thread", site.parts, thread_ms, "ms")
    yield Figure("agent: tasks a second", site.parts, per_s, "1/s")
    yield Figure("agent: tasks a second / bare loop", site.parts, per_s / bare["per_s"], "x")
    yield Figure("agent: memory", site.parts, used.memory_mb, "MB")
    yield Figure("rehearsal LLM: CPU a call", site.parts, 1000 * served.cpu_s / count, "ms")


def _agents(
    sites: Sites, count: int, faststream_per_s: float | None, *, quick: bool
) -> Iterator[Figure]:
    """Find the best number of agents on the servers, each with the same slots."""
    rates = {}
    for agents in range(1, (MOST_AGENTS if not quick else 2) + 1):
        site = sites.on_kafka()
        with llm(site.folder, "--latency", "0") as (url, _):
            _, rates[agents] = _run(site, url, count, agents=agents)
    best = max(rates, key=lambda agents: rates[agents])
    what, parts = f"best number of agents ({best}): tasks a second", "Kafka, MariaDB"
    yield Figure(what, parts, rates[best], "1/s", RATE_GOAL, at_least=True)
    if faststream_per_s:
        yield Figure(f"{what} / FastStream batch", parts, rates[best] / faststream_per_s, "x")
        yield Figure(
            "agent: tasks a second / FastStream batch", parts, rates[1] / faststream_per_s, "x"
        )


def _run(site: Site, url: str, count: int, *, agents: int) -> tuple[list[Used], float]:
    """Let agents work until all is done; return what they used, and results a second."""
    site.load(write_tasks(site.folder / "tasks.jsonl", count, LINE_BYTES, **answer_of_1_kb()))
    with ExitStack() as stack:
        running = [
            stack.enter_context(site.agent(url, "--until-done", "--slots", str(SLOTS)))
            for _ in range(agents)
        ]
        used = [agent.wait(900) for agent in running]
    return used, count / span(site, count).total_seconds()


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
