"""`python -m bench [NAME ...] [--quick]`: measure docllm on servers and on embedded parts.

The servers are Apache Kafka and MariaDB. `python -m bench rows --tasks N` measures instead what a
ledger of N tasks costs.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import loading, rows, slots, takeover, throughput
from bench.site import Sites
from bench.table import Figure, render
from tests.servers import Kafka, MariaDB

MEASUREMENTS = {
    "agent": throughput.measure,
    "slots": slots.measure,
    "load": loading.measure,
    "takeover": takeover.measure,
}
ROWS = "rows"  # the only name, because it has a table of its own


def main(argv: Sequence[str]) -> int:
    """Measure and print the table; return 1 when a goal was missed."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(MEASUREMENTS)} (all); {ROWS}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: whether it runs, not how fast"
    )
    parser.add_argument(
        "--tasks", type=int, default=rows.MILLION, metavar="N", help="tasks for rows (1000000)"
    )
    options = parser.parse_args(argv)
    if options.names == [ROWS]:
        sys.stdout.write(rows.measure(options.tasks) + "\n")
        return 0
    if unknown := [name for name in options.names if name not in MEASUREMENTS]:
        parser.error(f"no measurement {unknown[0]!r}; there are: {', '.join(MEASUREMENTS)}")
    figures = measured(options.names or list(MEASUREMENTS), quick=options.quick)
    sys.stdout.write(render(figures) + "\n")
    return 0 if all(one.reached for one in figures) else 1


def measured(names: Sequence[str], *, quick: bool) -> list[Figure]:
    """Return the figures of these measurements; print each on stderr as it comes."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="docllm-bench-") as name:
        folder = Path(name)
        with Kafka(folder=folder / "kafka") as kafka, MariaDB(folder=folder / "mariadb") as mariadb:
            sites = Sites(folder=folder, kafka=kafka, mariadb=mariadb)
            for title in names:
                for figure in MEASUREMENTS[title](sites, quick=quick):
                    sys.stderr.write(
                        f"{figure.what} ({figure.parts}): {figure.value:.2f} {figure.unit}\n"
                    )
                    figures.append(figure)
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
