"""How long short commands take beside a Python that does nothing, and an agent to its first result.

Each command and the empty Python run in turn, so that a busy machine delays both alike.
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

COMMANDS = (("--help",), ("--version",), ("status",))
NOTHING = ("-c", "pass")
RUNS, AGENTS = 15, 5


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run each command several times; a ledger without tasks is made before."""
    site = sites.embedded()
    site.run("producer", "migrate")
    for command in COMMANDS:
        yield from _start(site, command, 2 if quick else RUNS)
    firsts = [_first_result_s(sites.embedded()) for _ in range(1 if quick else AGENTS)]
    yield Figure("agent: start to first result", site.parts, statistics.median(firsts), "s")


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


def _start(site: Site, command: tuple[str, ...], runs: int) -> Iterator[Figure]:
    took: list[float] = []
    nothing: list[float] = []
    for _ in range(runs):
        nothing.append(_seconds(site, *NOTHING))
        took.append(_seconds(site, "-P", "-m", "docllm", *command))
    seconds, base = statistics.median(took), statistics.median(nothing)
    what = f"docllm {' '.join(command)}"
    yield Figure(f"{what}: time", site.parts, seconds, "s")
    yield Figure(f"{what}: time / `python -c pass`", site.parts, seconds / base, "")


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
