"""How long short commands take beside a Python that does nothing.

Each command and the empty Python run in turn, so that a busy machine delays both alike.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.site import Site, Sites
from bench.table import Figure

COMMANDS = (("--help",), ("--version",), ("status",))
NOTHING = ("-c", "pass")
RUNS = 15


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Run each command several times; a ledger without tasks is made before."""
    site = sites.embedded()
    site.run("producer", "migrate")
    for command in COMMANDS:
        yield from _start(site, command, 2 if quick else RUNS)


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
