"""How long short commands take beside an import that all need, and an agent to its first result.

Each command and a Python that only imports SQLAlchemy run in turn, so that a busy machine delays
both alike.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import Connection, func, select

from bench.site import Site, Sites, llm
from bench.table import Figure
from bench.tasks import write_plain
from docllm.schemas.ledger.tables import task_result

# Each with the most that it may take, as a multiple of the import.
COMMANDS = ((("--help",), None), (("--version",), None), (("status",), 1.5))
IMPORT = ("-c", "import sqlalchemy")
FIRST_GOAL_S = 2.0
RUNS, AGENTS = 15, 5


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run each command several times; a ledger without tasks is made before."""
    site = sites.embedded()
    site.run("producer", "migrate")
    for command, goal in COMMANDS:
        yield from _start(site, command, goal, 2 if quick else RUNS)
    for make in (sites.on_kafka, sites.embedded):
        agents = [make() for _ in range(1 if quick else AGENTS)]
        first_s = statistics.median([_first_result_s(one) for one in agents])
        yield Figure("agent: start to first result", agents[0].parts, first_s, "s", FIRST_GOAL_S)


def _first_result_s(site: Site) -> float:
    """Return the time from an agent's start to its first stored result, by the same clock."""
    site.load(write_plain(site.folder / "tasks.jsonl", 1))
    with llm(site.folder, "--latency", "0") as (url, _):
        began_s = time.time()
        with site.agent(url, "--until-done") as agent:
            agent.wait(120)
    return site.ask(_first_at).timestamp() - began_s


def _first_at(connection: Connection) -> datetime:
    stored = connection.execute(select(func.min(task_result.c.created_at))).scalar_one()
    return cast("datetime", stored).replace(tzinfo=UTC)


def _start(site: Site, command: tuple[str, ...], goal: float | None, runs: int) -> Iterator[Figure]:
    took: list[float] = []
    imports: list[float] = []
    for _ in range(runs):
        imports.append(_seconds(site, *IMPORT))
        took.append(_seconds(site, "-P", "-m", "docllm", *command))
    seconds, base = statistics.median(took), statistics.median(imports)
    what = f"docllm {' '.join(command)}"
    yield Figure(f"{what}: time", site.parts, seconds, "s")
    yield Figure(f"{what}: time / `import sqlalchemy`", site.parts, seconds / base, "", goal)


def _seconds(site: Site, *arguments: str) -> float:
    start_s = time.perf_counter()
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *arguments],
        check=True,
        cwd=site.folder,
        env=dict(site.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    return time.perf_counter() - start_s
