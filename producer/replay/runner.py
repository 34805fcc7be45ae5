"""Runs a replay: stores the selected items, then applies and publishes them page by page.

A replay may be killed at any moment. The group's next replay resumes the stored run, and applied
items are not applied again. Several replays may run at once; they share the waiting items and the
run's rate.

Tested by tests/contract/test_replay.py.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from producer.ledger import store
from producer.ledger.outbox import TASK
from producer.relay.relay import Relay
from producer.replay import records, runs, tasks
from producer.replay.runs import KINDS, Cursor, DroppedError, Page, ReplayRequest, Run
from schemas.ledger.database import Connection
from schemas.ledger.transactions import Transactions
from schemas.runtime import crash
from schemas.runtime.clock import Clock

# Items in one transaction.
TASKS = 500
SQLITE_TASKS = 200
RECORDS = 50
AGAIN_S = 0.5


@dataclass(slots=True)
class ReplayReport:
    """What one process saw of a run.

    `unread`: records that are no task, with the reason. `early`: the most tasks that waited for
    their dead letters at one time. `unsent`: whether records were left to the relay of some agent.
    """

    unread: dict[int, str] = field(default_factory=dict)
    early: int = 0
    unsent: bool = False


class Replay:
    """Replays of one group."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        relay: Relay,
        clock: Clock,
        group: str,
        max_attempts_of: Callable[[str], int],
        progress: Callable[[int], None],
        note: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._relay = relay
        self._clock = clock
        self._group = group
        self._max_attempts_of = max_attempts_of
        self._progress = progress
        self._note = note

    async def store(self, actor: str, request: ReplayRequest) -> Run | None:
        """Store the items that a request selects now; return the run, None when it has no items."""
        while True:
            try:
                return await self._store(actor, replace(request, nonce=secrets.token_hex(8)))
            except DroppedError:
                continue  # try again: each program drops others only once, at its start

    async def _store(self, actor: str, request: ReplayRequest) -> Run | None:
        def begin(connection: Connection) -> tuple[int, Cursor | None]:
            run_id = runs.begin(connection, self._group, actor, request)
            return run_id, runs.store(connection, self._group, run_id, request, Cursor())

        run_id, cursor = await self._transactions.write(begin)
        while cursor is not None:
            crash.reach("replay.page_stored")
            cursor = await self._transactions.write(
                runs.store, self._group, run_id, request, cursor
            )
        crash.reach("replay.stored")
        return await self._transactions.write(runs.find, run_id)

    async def apply(self, run: Run) -> ReplayReport:
        """Apply the waiting items of a run until none are left."""
        report, done = ReplayReport(), run.total - run.left
        while not await self._transactions.write(runs.end, run.id):
            finished = 0
            for kind in KINDS:
                finished += await self._apply_kind(run, kind, report, done + finished)
            done += finished
            if not finished:
                await self._wait()
        return report

    async def _apply_kind(self, run: Run, kind: int, report: ReplayReport, before: int) -> int:
        """Apply the items of one kind once through; return how many were finished."""
        after = done = 0
        while True:
            ids = await self._take_ids(run, kind)
            page = await self._transactions.write(self._page, run, kind, after, ids)
            if page is None:
                return done
            if page.wait_s > 0:
                await self._clock.sleep(page.wait_s)
                continue
            crash.reach("replay.page_applied")
            await self._relay.send(page.orders)
            crash.reach("replay.page_published")
            after, done = page.last, done + page.done
            report.unsent |= any(order.destination in self._relay.failing for order in page.orders)
            report.unread |= dict(page.unread)
            self._tell_early(report, page)
            self._progress(before + done)

    async def _take_ids(self, run: Run, kind: int) -> range:
        """Return new task ids for a page of records; tasks keep theirs.

        They are taken in a transaction of their own, so that their lock delays nobody.
        """
        if kind == TASK:
            return range(0)
        size = self._page_size(run, kind)
        first_id = await self._transactions.write(store.take_ids, size)
        return range(first_id, first_id + size)

    def _page(
        self, connection: Connection, run: Run, kind: int, after: int, ids: range
    ) -> Page | None:
        rate = run.request.rate
        if rate is None:
            return self._apply_page(connection, run, kind, after, ids)
        if (wait_s := runs.wait_s(connection, run.id, rate)) > 0:
            return Page(after, 0, wait_s=wait_s)
        page = self._apply_page(connection, run, kind, after, ids)
        if page is not None:
            runs.note_let_through(connection, run.id, page.done, rate)
        return page

    def _apply_page(
        self, connection: Connection, run: Run, kind: int, after: int, ids: range
    ) -> Page | None:
        if kind == TASK:
            size = self._page_size(run, kind)
            return tasks.apply(connection, self._group, run.id, run.request, after, size)
        return records.apply(connection, self._group, run.id, self._max_attempts_of, after, ids)

    def _page_size(self, run: Run, kind: int) -> int:
        rate = run.request.rate
        most = RECORDS
        if kind == TASK:
            most = SQLITE_TASKS if self._transactions.database.sqlite else TASKS
        return most if rate is None else share(rate, most)

    def _tell_early(self, report: ReplayReport, page: Page) -> None:
        if page.early > report.early:
            self._note(f"{page.early} tasks wait until their dead letters are on their topic")
            report.early = page.early

    async def _wait(self) -> None:
        """Run the relay and wait a moment.

        The remaining items are locked by another replay, or wait for their dead letters to reach
        the topic.
        """
        await self._relay.relay_once()
        await self._clock.sleep(AGAIN_S)


def share(rate: float, most: int) -> int:
    """Return how many items may pass in one page: at most one second's share of the rate."""
    return max(1, min(most, int(rate)))
