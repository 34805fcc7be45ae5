"""Rows that agents and screens read in a ledger of any size: `python -m bench rows --tasks N`.

It starts a MariaDB of its own, fills it with a million tasks and then with N, and measures each
piece of work once it has run before. Every transaction is undone.

Tested by tests/contract/database/test_scale.py.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from bench.filling import Size, fill
from bench.questions import questions
from bench.reads import Work, reads
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Database
from docllm.schemas.version import VERSION
from tests.servers import MariaDB

MILLION = 1_000_000
_DEAD_EVERY = 100
_TIMES = 3
_HEADINGS = ("function", "ms", "rows", "rows at 1M", "ratio")


class LargeMariaDB(MariaDB):
    """A MariaDB with the memory that a ledger of millions needs."""

    def command(self) -> Sequence[str]:
        """Return the server's command line; of two equal options the last counts."""
        return [*super().command(), "--innodb-buffer-pool-size=4G", "--innodb-log-file-size=1G"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a piece of work: its fastest run, and the rows that it reads."""

    ms: float
    rows: int


class _UndoneError(Exception):
    """Ends a transaction that only measured."""


def measure(tasks: int) -> str:
    """Return the table for a ledger with so many tasks."""
    with (
        tempfile.TemporaryDirectory(prefix="docllm-bench-") as folder,
        LargeMariaDB(folder=Path(folder) / "mariadb") as server,
    ):
        url = server.create_database("rows").replace("mysql://", "mysql+pymysql://", 1)
        database = Database(url, timeout_s=3600)
        try:
            migrations.migrate(database)
            base = _costs(database, min(tasks, MILLION))
            costs = base if tasks <= MILLION else _costs(database, tasks)
        finally:
            database.close()
    return f"docllm {VERSION}, MariaDB, {tasks:,} tasks\n{table(costs, base)}"


def table(costs: Mapping[str, Cost], base: Mapping[str, Cost]) -> str:
    """Return the costs as a table, with those of the smaller ledger beside them."""
    rows: list[Sequence[str]] = [_HEADINGS]
    for name, cost in costs.items():
        of_base = base[name].rows
        ratio = f"{cost.rows / max(1, of_base):.2f}"
        rows.append((name, f"{cost.ms:.1f}", f"{cost.rows:,}", f"{of_base:,}", ratio))
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _costs(database: Database, tasks: int) -> dict[str, Cost]:
    began_s = time.monotonic()
    fill(database, Size(tasks, _DEAD_EVERY))
    sys.stderr.write(f"{tasks:,} tasks written in {time.monotonic() - began_s:.0f} s\n")
    return {name: _cost(database, work) for name, work in questions(tasks).items()}


def _cost(database: Database, work: Work) -> Cost:
    rows = 0
    times_ms: list[float] = []

    def count(connection: Connection) -> None:
        nonlocal rows
        rows = reads(connection, work)
        raise _UndoneError

    def take_time(connection: Connection) -> None:
        began_s = time.perf_counter()
        work(connection)
        times_ms.append(1000 * (time.perf_counter() - began_s))
        raise _UndoneError

    for step in (count, *[take_time] * _TIMES):
        with suppress(_UndoneError):
            database.run(step)
    return Cost(min(times_ms), rows)
