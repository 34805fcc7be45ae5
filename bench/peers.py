"""`python -m bench peers`: what a killed worker costs docllm, Celery and a for-loop.

Each way makes the same calls to a rehearsal LLM with 64 at once, twice: undisturbed, for its speed;
and with one of two workers killed by SIGKILL in mid-run. The LLM counts the calls of each task.
Celery is installed into an environment of its own.
"""

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import redis
from sqlalchemy import Connection, func, select

from bench.program import Program, until
from bench.site import Site, Sites, environment, llm
from bench.venvs import python_with
from docllm.schemas.ledger.tables import task_result
from tests.servers import Redis

SLOTS = 32  # of each of two workers
LATENCY_S = 0.2
KILL_AT, LATE_S = 0.4, 30
QUIET_S = 120.0  # without a call or a result; then nothing more happens by itself
HERE = Path(__file__).parent
CELERY = "celery[redis]>=5.7,<6"
HEAD = (
    "way to make {tasks} calls of {latency} s, {slots} at once",
    "tasks/s",
    "after the kill, without a person: tasks without a result",
    "calls made twice",
    "all done after",
)


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended: tasks without a result, calls beyond the first of a task, and seconds."""

    missing: int
    twice: int
    took_s: float | None


@dataclass(frozen=True, slots=True)
class Way:
    """A way to make the calls. `start` begins two workers; `results` counts what is stored."""

    name: str
    start: Callable[[str, int], Sequence[Program]]
    results: Callable[[], int]


def measure(sites: Sites, *, quick: bool) -> str:
    """Return the table of all ways, in Markdown."""
    tasks = 600 if quick else 4000
    rows = [[part.format(tasks=tasks, latency=LATENCY_S, slots=2 * SLOTS) for part in HEAD]]
    with Redis(folder=sites.folder / "redis") as server:
        python = python_with("celery", CELERY)
        ways: tuple[Callable[[], Way], ...] = (
            lambda: _loop(sites.folder),
            lambda: _celery(sites.folder, server.url, python, late=False),
            lambda: _celery(sites.folder, server.url, python, late=True),
            lambda: _docllm(sites.on_kafka()),
        )
        for make in ways:
            calm = _run(sites.folder, make(), tasks, kill=False)
            killed = _run(sites.folder, make(), tasks, kill=True)
            rows.append(_row(make().name, tasks, calm, killed))
            sys.stderr.write(" | ".join(rows[-1]) + "\n")
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(HEAD)}", *lines[1:]])


def _row(name: str, tasks: int, calm: Run, killed: Run) -> list[str]:
    speed = "-" if calm.took_s is None else f"{tasks / calm.took_s:.0f}"
    done = "never" if killed.took_s is None else f"{killed.took_s:.0f} s"
    return [name, speed, str(killed.missing), str(killed.twice), done]


def _run(folder: Path, way: Way, tasks: int, *, kill: bool) -> Run:
    """Make all calls; kill one of the workers in mid-run if wanted."""
    with llm(folder, "--latency", str(LATENCY_S)) as (url, _), ExitStack() as stack:
        workers = [stack.enter_context(worker) for worker in way.start(url, tasks)]
        until(lambda: _calls(url), 120, f"the first call of {way.name}")
        began_s = time.monotonic()
        if kill:
            until(lambda: len(_calls(url)) > KILL_AT * tasks, 300, f"the middle of {way.name}")
            workers[0].kill()
            began_s = time.monotonic()
        ended_s = _end(url, way, tasks)
        twice = sum(count - 1 for count in _calls(url).values())
        missing = tasks - way.results()
        return Run(missing, twice, None if missing else ended_s - began_s)


def _end(url: str, way: Way, tasks: int) -> float:
    """Wait until all tasks have a result, or nothing has happened for a while."""
    state, changed_s = (0, 0), time.monotonic()
    while way.results() < tasks and time.monotonic() < changed_s + QUIET_S:
        now = (sum(_calls(url).values()), way.results())
        if now != state:
            state, changed_s = now, time.monotonic()
        time.sleep(0.1)
    return time.monotonic()


def _calls(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=30) as reply:  # noqa: S310 - ours
        return dict(orjson.loads(reply.read())["calls"])


def _loop(folder: Path) -> Way:
    """One process with a thread pool: there is nobody to take over."""
    out = folder / f"loop-{time.monotonic_ns()}.jsonl"

    def start(url: str, tasks: int) -> list[Program]:
        options = (url, str(tasks), str(2 * SLOTS), str(out))
        return [_program(folder, sys.executable, str(HERE / "peer_loop.py"), *options)]

    return Way("for-loop with a thread pool", start, lambda: _lines(out))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _celery(folder: Path, url: str, python: str, *, late: bool) -> Way:
    """Two Celery workers on Redis, as installed or with late acknowledgements."""
    client = redis.Redis.from_url(url)

    def start(llm_url: str, tasks: int) -> list[Program]:
        client.flushall()
        names = {"PEER_REDIS": url, "PEER_LLM": llm_url, "PYTHONPATH": str(HERE)}
        names |= {"PEER_LATE": str(LATE_S)} if late else {}
        with _program(folder, python, str(HERE / "peer_celery.py"), str(tasks), **names) as sender:
            sender.wait(300)
        worker = ("-m", "celery", "-A", "peer_celery", "worker", "--pool", "threads")
        options = (*worker, "--concurrency", str(SLOTS), "--loglevel", "ERROR")
        return [
            _program(folder, python, *options, "--hostname", f"w{number}@localhost", **names)
            for number in range(2)
        ]

    def results() -> int:
        return sum(1 for _ in client.scan_iter("celery-task-meta-*", count=5000))

    settings = f"late acks, visibility timeout {LATE_S} s" if late else "as installed"
    return Way(f"Celery on Redis, {settings}", start, results)


def _docllm(site: Site) -> Way:
    """Two agents on Kafka and MariaDB."""

    def start(url: str, tasks: int) -> list[Program]:
        path = site.folder / "tasks.jsonl"
        path.write_text(
            "".join(
                json.dumps({"id": f"t{number}", "prompt": f"Summarize: t{number}"}) + "\n"
                for number in range(tasks)
            )
        )
        site.load(path)
        return [site.agent(url, "--slots", str(SLOTS)) for _ in range(2)]

    return Way("docllm on Kafka and MariaDB", start, lambda: site.ask(_succeeded))


def _succeeded(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(task_result)) or 0


def _program(folder: Path, python: str, *arguments: str, **names: str) -> Program:
    name = f"peer-{time.monotonic_ns()}"
    environ = environment() | names
    return Program(*arguments, folder=folder, environ=environ, name=name, python=python)
