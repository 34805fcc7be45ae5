"""Runs a replay: stores what a person asked for, then applies it page by page and publishes each page at once.

It may be killed at any moment: what is stored is resumed by the next replay of the group, and what was applied is not applied
again. Several may run at once; they share what waits.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from producer import replay_records, replay_runs, replay_tasks
from producer.outbox import TASK
from producer.relay import Relay
from producer.replay_runs import KINDS, DroppedError, Page, Place, Run, Wish
from schemas import crash
from schemas.clock import Clock
from schemas.database import Connection, Database
from schemas.lanes import Lane

Result = TypeVar("Result")

TASKS, SQLITE_TASKS, RECORDS = 500, 200, 50  # items in one transaction
AGAIN_S = 0.5


class Pace:
    """Lets items pass at a rate, `per_s` of them each second; None: as fast as they come."""

    def __init__(self, per_s: float | None, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._free_s = clock.now_s()

    def size(self, most: int) -> int:
        """Return how many items may come together, so that a second has its share."""
        return most if self._per_s is None else max(1, min(most, int(self._per_s)))

    async def turn(self) -> None:
        """Wait until the next items may come."""
        await self._clock.sleep(max(0.0, self._free_s - self._clock.now_s()))

    def passed(self, count: int) -> None:
        """Note that items came."""
        if self._per_s is not None:
            self._free_s = max(self._free_s, self._clock.now_s()) + count / self._per_s


@dataclass(slots=True)
class Report:
    """What one process saw of a run.

    `unread`: records that are no task, with the reason; `early`: the most tasks that waited for their letters; `unsent`: whether
    records were left to any agent's relay.
    """

    unread: dict[int, str] = field(default_factory=dict)
    early: int = 0
    unsent: bool = False


class Replay:
    """Replays of one group."""

    def __init__(
        self,
        *,
        database: Database,
        lane: Lane,
        relay: Relay,
        clock: Clock,
        group: str,
        max_attempts_of: Callable[[str], int],
        progress: Callable[[int], None],
        note: Callable[[str], None],
    ) -> None:
        self._database = database
        self._lane = lane
        self._relay = relay
        self._clock = clock
        self._group = group
        self._max_attempts_of = max_attempts_of
        self._progress = progress
        self._note = note

    async def store(self, actor: str, wish: Wish) -> Run | None:
        """Store what a wish selects now; return the run, None when that is nothing."""
        while True:
            try:
                return await self._store(actor, replace(wish, nonce=secrets.token_hex(8)))
            except DroppedError:
                continue  # each program drops others only once, at its start

    async def _store(self, actor: str, wish: Wish) -> Run | None:
        def first(connection: Connection) -> tuple[int, Place | None]:
            run_id = replay_runs.begin(connection, self._group, actor, wish)
            return run_id, replay_runs.store(connection, self._group, run_id, wish, Place())

        run_id, place = await self._run(first)
        while place is not None:
            crash.reach("replay.page_stored")
            place = await self._run(partial(self._store_page, run_id=run_id, wish=wish, place=place))
        crash.reach("replay.stored")
        return await self._run(lambda c: replay_runs.find(c, run_id))

    def _store_page(self, connection: Connection, *, run_id: int, wish: Wish, place: Place) -> Place | None:
        return replay_runs.store(connection, self._group, run_id, wish, place)

    async def apply(self, run: Run) -> Report:
        """Apply what waits of a run, until nothing does."""
        report, pace, done = Report(), Pace(run.wish.rate, self._clock), run.total - run.left
        while not await self._run(lambda c: replay_runs.end(c, run.id)):
            passed = 0
            for kind in KINDS:
                passed += await self._apply_kind(run, kind, report, pace, done + passed)
            done += passed
            if not passed:
                await self._wait()
        return report

    async def _apply_kind(self, run: Run, kind: int, report: Report, pace: Pace, before: int) -> int:
        """Apply the items of one kind once through; return how many are done with."""
        after = done = 0
        while True:
            await pace.turn()
            page = await self._run(partial(self._page, run=run, kind=kind, after=after, size=pace.size(self._most(kind))))
            if page is None:
                return done
            crash.reach("replay.page_applied")
            await self._relay.send(page.orders)
            crash.reach("replay.page_published")
            after, done = page.last, done + page.done
            pace.passed(page.done)
            report.unsent |= any(order.destination in self._relay.failing for order in page.orders)
            report.unread |= dict(page.unread)
            self._tell_early(report, page)
            self._progress(before + done)

    def _page(self, connection: Connection, *, run: Run, kind: int, after: int, size: int) -> Page | None:
        if kind == TASK:
            return replay_tasks.apply(connection, self._group, run.id, run.wish, after, size)
        return replay_records.apply(connection, self._group, run.id, self._max_attempts_of, after, size)

    def _most(self, kind: int) -> int:
        if kind == TASK:
            return SQLITE_TASKS if self._database.sqlite else TASKS
        return RECORDS

    def _tell_early(self, report: Report, page: Page) -> None:
        if page.early > report.early:
            self._note(f"{page.early} tasks wait until their dead letters are on their topic")
            report.early = page.early

    async def _wait(self) -> None:
        """What waits is in another replay's hands, or its letter is not on its topic yet: see to that one."""
        await self._relay.relay_once()
        await self._clock.sleep(AGAIN_S)

    async def _run(self, work: Callable[[Connection], Result]) -> Result:
        return await self._lane(lambda: self._database.run(work))
