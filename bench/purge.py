"""What a purge costs a group that works beside it: `python -m bench purge [--tasks N] [--whole]`.

A MariaDB of its own has one batch of final tasks. One program loads, claims and settles groups of
tasks all the time. In turns of ten seconds the batch is purged beside it, and is not, so that other
load of the machine meets both alike. It takes a quarter of an hour, and 6 GB for a million tasks.
With `--whole`, the rest of the batch is purged afterwards, beside nothing: half an hour or more.

Tested by tests/unit/test_bench_purge.py.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, literal, update

from bench.filling import copy, key_sql, numbered
from bench.rows import LargeMariaDB
from bench.table import Figure
from docllm.agent.ports import ClaimAnswer
from docllm.producer.ledger.retention import purge_rows
from docllm.producer.ledger.store import take_ids
from docllm.producer.retention.purge import purge
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.sql import NEVER_TIME, UtcTime, utc_now
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    GROUP,
    SUCCEEDED,
    LedgerDatabase,
    driven,
    new_task,
    settlement,
)

CHUNK, BODY_BYTES = 50_000, 2000
MILLION, QUICK = 1_000_000, 20_000
TOGETHER = 50  # tasks in a settle
TURN_S, TURNS = 10.0, 45
OLD = "old"
GOAL = 1.2


class Worker(threading.Thread):
    """Loads, claims and settles tasks until it is stopped; `settles` has begin and duration."""

    def __init__(self, ledger: LedgerDatabase) -> None:
        super().__init__(name="worker", daemon=True)
        self.settles: list[tuple[float, float]] = []
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
            self.settles.append((began_s, time.perf_counter() - began_s))
            number += 1


class Turns(SystemClock):
    """The clock of a purge that rests after `turn_s` of work for as long, in turn.

    `rests` has the begin and the end of each rest. After `turns` of them, `end` is called: the
    purge goes on without rests, unless `end` raises.
    """

    def __init__(self, turn_s: float, turns: int) -> None:
        super().__init__()
        self.rests: list[tuple[float, float]] = []
        self.end: Callable[[], None]
        self._turn_s = turn_s
        self._turns = turns
        self._until_s = time.perf_counter() + turn_s

    async def sleep(self, seconds: float) -> None:
        """Sleep, and rest when it is time."""
        await super().sleep(seconds)
        began_s = time.perf_counter()
        if began_s < self._until_s:
            return
        await super().sleep(self._turn_s)
        self._until_s = time.perf_counter() + self._turn_s
        self.rests.append((began_s, time.perf_counter()))
        if len(self.rests) >= self._turns:
            self._until_s = float("inf")
            self.end()


class _EnoughError(Exception):
    """Ends a purge that was measured for long enough."""


def measure(
    folder: Path, *, quick: bool, tasks: int = MILLION, whole: bool = False
) -> Iterator[Figure]:
    """Measure it; with `quick` few tasks, with `whole` to the batch's end."""
    count = QUICK if quick else tasks
    with LargeMariaDB(folder=folder / "mariadb") as server:
        database = Database(driven(server.create_database("purge")), timeout_s=600)
        migrations.migrate(database)
        ledger = LedgerDatabase(database)
        _fill(ledger, OLD, count)
        clock = Turns(0.5, 4) if quick else Turns(TURN_S, TURNS)
        yield from _measured(ledger, count, clock, whole=whole)
        database.close()


def _measured(
    ledger: LedgerDatabase, count: int, clock: Turns, *, whole: bool = False
) -> Iterator[Figure]:
    worker = Worker(ledger)
    done = list[int]()
    beside = list[int]()

    def stop() -> None:
        beside.append(done[-1])
        worker.stopping.set()
        worker.join()
        if not whole:
            raise _EnoughError

    clock.end = stop
    worker.start()
    began_s = time.perf_counter()
    asyncio.run(_purge(ledger, clock, done.append))
    ended_s = time.perf_counter()
    alone_s, beside_s = list[float](), list[float]()
    for at_s, took_s in worker.settles:
        rests = any(first_s <= at_s <= last_s for first_s, last_s in clock.rests)
        (alone_s if rests else beside_s).append(took_s)
    purge_s = clock.rests[-1][0] - began_s - sum(last - first for first, last in clock.rests[:-1])
    what = f"settles of {TOGETHER} tasks"
    yield Figure(f"{what}, {len(alone_s):,} of them, p99", "MariaDB", _p99(alone_s) * 1000, "ms")
    yield Figure(
        f"{what} beside a purge, {len(beside_s):,}, p99", "MariaDB", _p99(beside_s) * 1000, "ms"
    )
    ratio = _p99(beside_s) / _p99(alone_s)
    yield Figure(f"the same, in a ledger of {count:,} tasks", "MariaDB", ratio, "ratio", GOAL)
    yield Figure(f"purge of {beside[0]:,} tasks", "MariaDB", beside[0] / purge_s, "tasks/s")
    if whole:
        rest, rest_s = done[-1] - beside[0], ended_s - clock.rests[-1][1]
        yield Figure(f"purge of the last {rest:,} tasks", "MariaDB", rest / rest_s, "tasks/s")


def _p99(times_s: Sequence[float]) -> float:
    return statistics.quantiles(times_s, n=100)[-1]


async def _purge(ledger: LedgerDatabase, clock: Turns, progress: Callable[[int], None]) -> None:
    """Purge the old batch for as long as it is measured; tell how many tasks are done."""
    target = ledger.call(purge_rows.find, GROUP, OLD)
    if target is None:
        raise RuntimeError(f"no batch {OLD}")
    with suppress(_EnoughError):
        await purge(
            ledger.transactions,
            clock,
            target,
            store=OutputStores(executor=InlineExecutor(), objects=ObjectStores()),
            actor="bench",
            unarchived=True,
            progress=progress,
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
