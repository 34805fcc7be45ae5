"""What a purge costs a group that works beside it: `python -m bench purge [--tasks N]`.

A MariaDB of its own has ten batches of final tasks. One program loads, claims and settles groups
of tasks all the time; in turn a batch is purged beside it, and nothing is. Both are compared
within the same run. A million tasks take an hour and 10 GB of disk; a line tells each batch.

Tested by tests/unit/test_bench_purge.py.
"""

import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, literal, update

from agent.ports import ClaimAnswer
from bench.filling import copy, key_sql, numbered
from bench.rows import LargeMariaDB
from bench.table import Figure
from producer.ledger.retention import purgeable
from producer.ledger.retention.purgeable import Keep
from producer.ledger.store import take_ids
from producer.retention.purge import purge
from schemas.ledger import migrations, tables
from schemas.ledger.database import Database
from schemas.ledger.sql import NEVER_TIME, UtcTime, utc_now
from schemas.objects.store import ObjectStores
from schemas.outputs.stores import OutputStores
from schemas.runtime.clock import SystemClock
from schemas.runtime.executors import InlineExecutor
from schemas.task.states import Status
from tests.contract.ledger_parts import (
    GROUP,
    SUCCEEDED,
    LedgerDatabase,
    driven,
    new_task,
    settlement,
)

BATCHES, CHUNK, BODY_BYTES = 10, 50_000, 2000
MILLION, QUICK = 1_000_000, 4000
TOGETHER = 50  # tasks in a settle
LEAST_S, MOST_S = 5.0, 60.0  # of a time without a purge
GOAL = 1.2


class Worker(threading.Thread):
    """Loads, claims and settles tasks until it is stopped; `took_s` has the time of each settle."""

    def __init__(self, ledger: LedgerDatabase) -> None:
        super().__init__(name="worker", daemon=True)
        self.took_s: list[float] = []
        self.stopping = threading.Event()
        self._ledger = ledger
        self._lease = ledger.agent()

    def run(self) -> None:
        """Work."""
        number = 0
        into = self._ledger.batch("live")
        while not self.stopping.is_set():
            names = [f"{self.name}-{number}-{place}" for place in range(TOGETHER)]
            tasks = [new_task(name, b"x" * BODY_BYTES) for name in names]
            ids = list(self._ledger.accept(tasks, into).new.values())
            owner = self._lease.next_owner()
            answers = self._ledger.answers([self._ledger.record(key) for key in ids], owner)
            rows = [
                row for answer, row in answers.values() if answer is ClaimAnswer.CLAIMED and row
            ]
            settlements = [settlement(row, owner, SUCCEEDED) for row in rows]
            began_s = time.perf_counter()
            self._ledger.settle_all(settlements)
            self.took_s.append(time.perf_counter() - began_s)
            number += 1


def measure(folder: Path, *, quick: bool, tasks: int = MILLION) -> Iterator[Figure]:
    """Measure it; with `quick` few tasks."""
    count = QUICK if quick else tasks
    with LargeMariaDB(folder=folder / "mariadb") as server:
        database = Database(driven(server.create_database("purge")), timeout_s=600)
        migrations.migrate(database)
        ledger = LedgerDatabase(database)
        for number in range(BATCHES):
            _fill(ledger, f"old{number}", count // BATCHES)
        yield from _measured(ledger, count, 0.5 if quick else LEAST_S)
        database.close()


def _measured(ledger: LedgerDatabase, count: int, least_s: float) -> Iterator[Figure]:
    alone_s, beside_s, purge_s = list[float](), list[float](), 0.0
    worker = Worker(ledger)
    worker.start()
    time.sleep(least_s)
    for number in range(BATCHES):
        first = len(worker.took_s)
        began_s = time.perf_counter()
        asyncio.run(_purge(ledger, f"old{number}"))
        lasted_s = time.perf_counter() - began_s
        middle = len(worker.took_s)
        time.sleep(max(least_s, min(lasted_s, MOST_S)))
        beside_s += worker.took_s[first:middle]
        alone_s += worker.took_s[middle:]
        purge_s += lasted_s
        ratio = _p99(beside_s) / _p99(alone_s)
        sys.stderr.write(f"batch {number + 1} of {BATCHES}: {lasted_s:.0f} s, so far {ratio:.2f}\n")
    worker.stopping.set()
    worker.join()
    alone, beside = _p99(alone_s), _p99(beside_s)
    what = f"settles of {TOGETHER} tasks"
    yield Figure(f"{what}, p99", "MariaDB", alone * 1000, "ms")
    yield Figure(f"{what} beside a purge, p99", "MariaDB", beside * 1000, "ms")
    yield Figure(f"the same, of {count:,} tasks", "MariaDB", beside / alone, "ratio", GOAL)
    yield Figure("purge", "MariaDB", count / purge_s, "tasks/s")


def _p99(times_s: Sequence[float]) -> float:
    return statistics.quantiles(times_s, n=100)[-1]


async def _purge(ledger: LedgerDatabase, name: str) -> None:
    target = ledger.call(purgeable.find, GROUP, name)
    if target is None:
        raise RuntimeError(f"no batch {name}")
    transactions, clock = ledger.transactions, SystemClock()
    executor = InlineExecutor()
    await purge(
        transactions,
        clock,
        target,
        Keep.NOTHING,
        store=OutputStores(executor=executor, objects=ObjectStores()),
        actor="bench",
        unarchived=True,
    )


def _fill(ledger: LedgerDatabase, name: str, count: int) -> None:
    """Write a batch of tasks that have succeeded, by SQL alone."""
    into = ledger.batch(name)
    first_id = ledger.run(lambda c: take_ids(c, count))
    for start in range(0, count, CHUNK):
        rows = min(CHUNK, count - start)
        ledger.run(lambda c, first=first_id + start, rows=rows: _write(c, into.id, first, rows))  # type: ignore[misc]
    close = update(tables.batch).where(tables.batch.c.id == into.id).values(closed_at=utc_now())
    ledger.run(lambda c: c.execute(close))


def _write(connection: Connection, batch_id: int, first_id: int, rows: int) -> None:
    numbers = numbered(first_id, rows)
    body = {"task_id": numbers.c.n, "body": literal(b"x" * BODY_BYTES)}
    of_task = {
        "id": numbers.c.n,
        "batch_id": literal(batch_id),
        "task_key": key_sql(connection, "numbers.n"),
        "digest": literal(bytes(16)),
        "type": literal("document"),
        "status": literal(int(Status.SUCCEEDED)),
        "due_at": literal(NEVER_TIME, UtcTime),
    }
    copy(connection, tables.task, of_task)
    copy(connection, tables.task_input, body)
    copy(connection, tables.task_result, body | {"codec": literal(0)})
