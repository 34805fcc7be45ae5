"""Applies stored replays: page by page, each page in one transaction, then published.

Any number of processes may apply one run: they share its waiting items and its rate. Each may be
killed at any moment, and the others go on.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from docllm.producer.app import Parts
from docllm.producer.ledger import store
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.quarantine import KEPT_BYTES, headers_of
from docllm.producer.ledger.replay_progress import ReplayRun
from docllm.producer.loading import foreign_records
from docllm.producer.loading.foreign_records import ReadLine
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay import records, runs, tasks
from docllm.producer.replay.runs import Cursor, Page
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record.envelope import RawHeaders

# Items in one transaction.
TASKS = 500
SQLITE_TASKS = 200
RECORDS = 50
RETRY_END_S = 0.5


def _value(row: Row[Any]) -> bytes:
    """Return the record's value; raise LineError if the ledger does not have all of it."""
    where = f"{row.topic}/{row.part}/{row.record_offset}"
    if row.value_digest is not None:
        fix = (
            f"the whole record is at {where} as long as its topic keeps it; "
            "produce it again to the inbox"
        )
        raise LineError(
            "value",
            f"had more than the {KEPT_BYTES >> 20} MiB that a task may have, and was cut",
            fix,
        )
    if row.record_value is None:
        raise LineError(
            "value",
            "is missing",
            f"look for the record at {where}; a record without a value is not a task",
        )
    return bytes(row.record_value)


def _headers(packed: bytes | None) -> RawHeaders:
    return [(name, None if value is None else value.encode()) for name, value in headers_of(packed)]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one page: where the process goes on, and after how many seconds.

    `early`: tasks of the page that wait for their dead letters. `unsent`: whether its records are
    left to the relay of some agent.
    """

    cursor: Cursor
    wait_s: float = 0.0
    early: int = 0
    unsent: bool = False


@dataclass(kw_only=True, eq=False)
class Applier:
    """Applies the runs of one group.

    `apart` reads lines that take long: in another process if this one has more to do. `failed` is
    told of errors that may be none of a record's.
    """

    transactions: Transactions
    relay: Relay
    group: str
    max_attempts_of: Callable[[str], int]
    limit_of: Callable[[str], float]
    apart: Executor
    failed: Callable[[BaseException], object]
    joins: bool = False

    async def advance(self, run: ReplayRun, cursor: Cursor) -> Step:
        """Apply the next page of a run, or end the run if none of its items waits."""
        apply_next = self._next_tasks if cursor.kind == TASK else self._next_records
        page = await apply_next(run, cursor.after)
        if page is None:
            return await self._end_kind(run, cursor)
        if page.wait_s > 0:
            return Step(cursor, page.wait_s)
        crash.reach("replay.page_applied")
        await self.relay.send(page.orders)
        crash.reach("replay.page_published")
        unsent = any(order.destination in self.relay.failing for order in page.orders)
        return Step(Cursor(cursor.kind, page.last), early=page.early, unsent=unsent)

    async def _end_kind(self, run: ReplayRun, cursor: Cursor) -> Step:
        """Go on with the other kind of items, or with the first item.

        Items that still wait are locked by another process, or wait for their dead letters.
        """
        if cursor.kind == TASK and run.request.selection.names_records:
            return Step(Cursor(QUARANTINE))
        ended = await self.transactions.write(runs.end, run.id)
        return Step(Cursor(), 0.0 if ended else RETRY_END_S)

    async def _next_tasks(self, run: ReplayRun, after: int) -> Page | None:
        return await self.transactions.write(self._apply_tasks, run, after)

    def _apply_tasks(self, connection: Connection, run: ReplayRun, after: int) -> Page | None:
        if (wait_s := _wait_s(connection, run)) > 0:
            return Page(after, 0, wait_s=wait_s)
        most = SQLITE_TASKS if self.transactions.database.sqlite else TASKS
        size = _page_size(run, most)
        page = tasks.apply(connection, self.group, run.id, run.request, after, size)
        if page is not None:
            _note_let_through(connection, run, page)
        return page

    async def _next_records(self, run: ReplayRun, after: int) -> Page | None:
        """Read the next records outside of a transaction, then apply them in one.

        Their tasks' ids are taken in a transaction of their own, so that its lock delays nobody.
        """
        if run.request.rate is not None:  # before records are read in vain
            wait_s = await self.transactions.write(_wait_s, run)
            if wait_s > 0:
                return Page(after, 0, wait_s=wait_s)
        size = _page_size(run, RECORDS)
        rows = await self.transactions.read(records.kept, run.id, after, size)
        if not rows:
            return None
        lines = await self.read(rows)
        first_id = await self.transactions.write(store.take_ids, len(lines))

        def apply(connection: Connection) -> Page:
            if (wait_s := _wait_s(connection, run)) > 0:
                return Page(after, 0, wait_s=wait_s)
            page = records.apply(connection, self.group, run.id, lines, first_id, joins=self.joins)
            _note_let_through(connection, run, page)
            return page

        return await self.transactions.write(apply)

    async def read(self, rows: Sequence[Row[Any]]) -> dict[int, ReadLine]:
        """Return what each record of the quarantine is, by its number."""
        lines: dict[int, ReadLine] = {}
        for row in rows:
            lines[row.id] = await self._read(row)
            await asyncio.sleep(0)  # everything else gets its turn between two records
        return lines

    async def _read(self, row: Row[Any]) -> ReadLine:
        try:
            value, headers = _value(row), _headers(row.headers)
        except LineError as error:
            self.failed(error.__cause__ or error)
            return foreign_records.reason_text(error)
        return await foreign_records.read_apart(
            row.record_key,
            value,
            headers,
            group=self.group,
            max_attempts_of=self.max_attempts_of,
            limit_of=self.limit_of,
            apart=self.apart,
            failed=self.failed,
        )


def make_applier(
    parts: Parts, *, relay: Relay, apart: Executor, failed: Callable[[BaseException], object]
) -> Applier:
    """Return an applier of the group's replays; for the last two parameters see `Applier`."""

    # An agent may replace its settings.
    def max_attempts_of(task_type: str) -> int:
        return parts.config.max_attempts_of(task_type)

    def most_s_of(task_type: str) -> float:
        return limit_of(parts.config, task_type)

    return Applier(
        transactions=parts.transactions,
        relay=relay,
        group=parts.topics.group,
        max_attempts_of=max_attempts_of,
        limit_of=most_s_of,
        apart=apart,
        failed=failed,
        joins=parts.config.inbox.join_batches,
    )


def _wait_s(connection: Connection, run: ReplayRun) -> float:
    """Return in how many seconds the run's rate lets items through."""
    rate = run.request.rate
    return 0.0 if rate is None else runs.wait_s(connection, run.id, rate)


def _note_let_through(connection: Connection, run: ReplayRun, page: Page) -> None:
    if run.request.rate is not None:
        runs.note_let_through(connection, run.id, page.done, run.request.rate)


def _page_size(run: ReplayRun, most: int) -> int:
    rate = run.request.rate
    return most if rate is None else share(rate, most)


def share(rate: float, most: int) -> int:
    """Return how many items may pass in one page: at most one second's share of the rate."""
    return max(1, min(most, int(rate)))
