"""`python -m bench [NAME ...] [--quick]`: measure docllm on servers and on embedded parts.

Without a name it prints one table: what a plain task costs in counts that need no clock (`weight`),
in CPU and seconds beside other people's ways (`agent`), how well slots are used (`slots`), how fast
`load` and `export` are, and how long programs take to start (`starts`). `takeover` is what a kill
costs. The servers are Apache Kafka and MariaDB.

`python -m bench rows --tasks N` measures instead what a
ledger of N tasks costs, `python -m bench peers` what a killed worker costs docllm, Celery and a
for-loop, `python -m bench limits` how well a limit is used that the agent is not told,
`python -m bench quotas` what it costs Redis that many agents share a limit,
`python -m bench weight` what a plain task costs beside each feature that others use,
`python -m bench metrics` and `python -m bench traces` what metrics and traces cost an agent, and
`python -m bench purge` what a purge costs the group beside it.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import (
    exporting,
    limits,
    loading,
    metrics,
    peers,
    purge,
    quotas,
    rows,
    slots,
    starts,
    takeover,
    throughput,
    traces,
    weight,
)
from bench.site import Sites
from bench.table import Figure, render
from tests.servers import Kafka, MariaDB

MEASUREMENTS = {
    "agent": throughput.measure,
    "slots": slots.measure,
    "load": loading.measure,
    "export": exporting.measure,
    "takeover": takeover.measure,
    "starts": starts.measure,
}
TABLE = ("agent", "slots", "load", "export", "starts")
# Each the only name: it has a table of its own, or needs none of the servers.
ROWS, PEERS, METRICS = "rows", "peers", "metrics"
LIMITS, QUOTAS, TRACES = "limits", "quotas", "traces"
PURGE, WEIGHT = "purge", "weight"


def main(argv: Sequence[str]) -> int:
    """Measure and print the table; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(MEASUREMENTS)} (all but the kills); or one of "
        f"{ROWS}; {PEERS}; {METRICS}; {LIMITS}; {QUOTAS}; {TRACES}; {PURGE}; {WEIGHT}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: whether it runs, not how fast"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        default=rows.MILLION,
        metavar="N",
        help="tasks for rows and purge (1000000)",
    )
    parser.add_argument("--whole", action="store_true", help="purge: go on to the batch's end")
    options = parser.parse_args(argv)
    if options.names == [ROWS]:
        sys.stdout.write(rows.measure(options.tasks) + "\n")
        return 0
    if options.names == [PEERS]:
        with sites() as place:
            sys.stdout.write(peers.measure(place, quick=options.quick) + "\n")
        return 0
    if options.names == [METRICS]:
        with sites() as place:
            return _shown(list(_told(metrics.measure(place, quick=options.quick))))
    alone = {LIMITS: limits.measure, QUOTAS: quotas.measure, TRACES: traces.measure}
    alone |= {WEIGHT: weight.measure}
    alone |= {PURGE: partial(purge.measure, tasks=options.tasks, whole=options.whole)}
    if len(options.names) == 1 and options.names[0] in alone:
        measure = alone[options.names[0]]
        with tempfile.TemporaryDirectory(prefix="docllm-bench-") as name:
            return _shown(list(_told(measure(Path(name), quick=options.quick))))
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"no measurement {unknown[0]!r}; there are: {', '.join(MEASUREMENTS)}")
    with tempfile.TemporaryDirectory(prefix="docllm-bench-") as name:
        # Before servers start: these agents are forks, of a process that must have no threads.
        counted = (
            [] if options.names else list(_told(weight.plain(Path(name), quick=options.quick)))
        )
    return _shown(counted + measured(options.names or TABLE, quick=options.quick))


def _shown(figures: Sequence[Figure]) -> int:
    sys.stdout.write(render(figures) + "\n")
    return 0 if all(one.reached for one in figures) else 1


def measured(names: Sequence[str], *, quick: bool) -> list[Figure]:
    """Return the figures of these measurements; print each on stderr as it comes."""
    figures: list[Figure] = []
    with sites() as place:
        for title in names:
            figures.extend(_told(MEASUREMENTS[title](place, quick=quick)))
    return figures


def _told(figures: Iterable[Figure]) -> Iterator[Figure]:
    for figure in figures:
        sys.stderr.write(f"{figure.what} ({figure.parts}): {figure.value:.2f} {figure.unit}\n")
        yield figure


@contextmanager
def sites() -> Iterator[Sites]:
    """Start the servers in a temporary folder, and yield what makes installations on them."""
    with tempfile.TemporaryDirectory(prefix="docllm-bench-") as name:
        folder = Path(name)
        with Kafka(folder=folder / "kafka") as kafka, MariaDB(folder=folder / "mariadb") as mariadb:
            yield Sites(folder=folder, kafka=kafka, mariadb=mariadb)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
