"""Tasks that wait in the ledger are called up, once, when their time or their reason is over."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from docllm.agent.ledger.claims import claiming, waking
from docllm.agent.maintenance.waits import waker
from docllm.agent.maintenance.waits.waker import Waker
from docllm.agent.ports import ClaimAnswer, Order
from docllm.agent.ports.outcome import NOTHING_SPENT, Failure, HandlerState, Moved, Outcome, Retry
from docllm.agent.routes import Router
from docllm.producer.ledger import cancel, task_story, waiting_rows
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger import tables
from docllm.schemas.settings.config import RouteConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import NO_ROUTE, WaitReason
from tests.contract.guards.steps import claimed, ended, moved_for_route
from tests.support.doubles import double_of
from tests.support.ledger_database import BATCH, GROUP, SPENT, SUCCEEDED, LedgerDatabase, new_task
from tests.support.routes import GOOD, ROUTE, call, failed, routes

FAILURE = Failure(ErrorClass.COME_BACK, "later")
FOR_ROUTE = WaitingFor(WaitReason.ROUTE, ROUTE)


def waiting(ledger_db: LedgerDatabase, number: int, route: str = ROUTE) -> list[int]:
    """Return new tasks that were moved because this route was closed."""
    return ending(ledger_db, number, moved_for_route(route))


def moved(reason: WaitReason, key: str = "", delay_s: float = 3600.0) -> Moved:
    return Moved(FAILURE, NOTHING_SPENT, delay_s, reason, key)


def ending(
    ledger_db: LedgerDatabase, number: int, outcome: Outcome, into: str = BATCH
) -> list[int]:
    """Return new tasks that were settled with this outcome."""
    claims = claimed(ledger_db, number, into)
    ended(ledger_db, claims, *[outcome] * number)
    return [row.task_id for row, _ in claims]


def called(orders: Sequence[Order]) -> list[int]:
    assert {order.destination for order in orders} <= {"tasks"}
    return [item.id for order in orders for item in order.items]


def told(ledger_db: LedgerDatabase, ended: WaitingFor = FOR_ROUTE, limit: int = 500) -> list[Order]:
    """Call up all tasks that wait for this; return the orders."""
    orders: list[Order] = []
    while True:
        page = ledger_db.run(partial(waking.call_up_told, group=GROUP, ended=ended, limit=limit))
        orders += page.orders
        if not page.seen:
            return orders


def due(ledger_db: LedgerDatabase, group: str = GROUP) -> list[int]:
    """Call up a page of tasks whose time has come; return them."""
    return called(ledger_db.run(partial(waking.call_up_due, group=group)).orders)


def rows_of(ledger_db: LedgerDatabase, *ids: int) -> list[Any]:
    return [row for row in ledger_db.rows(tables.waiting) if row.task_id in ids]


# ---- a task that waits


def test_a_move_waits_in_the_ledger_without_a_record(ledger_db: LedgerDatabase) -> None:
    """Its fence has risen, so its record is stale; the row says for what it waits, and how long."""
    (task_id,) = waiting(ledger_db, 1)
    task = ledger_db.task(task_id)
    orders = ledger_db.count(tables.outbox)
    (row,) = rows_of(ledger_db, task_id)

    assert (task.status, task.fence, task.attempt, task.owner) == (Status.RETRYING, 1, 0, 0)
    assert (row.fence, row.group_name, row.reason, row.reason_key) == (1, GROUP, "ROUTE", ROUTE)
    assert row.due_at == task.due_at
    assert orders == 0
    owner = ledger_db.agent().next_owner()
    answer, _ = ledger_db.answers([ledger_db.record(task_id)], owner)[task_id]
    assert answer is ClaimAnswer.STALE


def test_a_task_is_called_up_when_its_time_comes_and_not_before(ledger_db: LedgerDatabase) -> None:
    """The order goes to the task's lane, under its present fence, and the row is gone."""
    soon, later = ending(ledger_db, 2, moved(WaitReason.TIME))
    assert due(ledger_db) == []
    assert not ledger_db.run(partial(waking.any_due, group=GROUP))

    for table in (tables.task.c.due_at, tables.waiting.c.due_at):
        ledger_db.ago(table, 1, soon)

    assert ledger_db.run(partial(waking.any_due, group=GROUP))
    assert due(ledger_db) == [soon]
    assert rows_of(ledger_db, soon) == []
    assert ledger_db.task(soon).carrier == "tasks"
    assert len(rows_of(ledger_db, later)) == 1
    assert due(ledger_db) == []


def test_a_wait_until_an_instant_ends_then(ledger_db: LedgerDatabase) -> None:
    """By the database's clock; an instant in the past leaves the shortest wait."""
    at = datetime(2090, 5, 17, 12, 30, tzinfo=UTC)
    outcome = replace(moved(WaitReason.TIME, delay_s=1.0), at=at)
    (task_id,) = ending(ledger_db, 1, outcome)
    (past,) = ending(ledger_db, 1, replace(outcome, at=at - timedelta(days=36_500)))

    assert ledger_db.task(task_id).due_at == at.replace(tzinfo=None)
    assert rows_of(ledger_db, task_id)[0].due_at == at.replace(tzinfo=None)
    assert ledger_db.due_in_s(past) <= 1.0


def test_a_wait_ends_with_the_deadline_of_its_task(ledger_db: LedgerDatabase) -> None:
    """Then the task is called up, and its claim finds it expired."""
    (row, owner), *_ = claimed(ledger_db, 1)
    ledger_db.ago(tables.task.c.expires_at, 1, row.task_id)
    ended(ledger_db, [(row, owner)], moved(WaitReason.TIME))

    assert due(ledger_db) == [row.task_id]
    again = ledger_db.claimed(row.task_id, ledger_db.agent().next_owner(), 1)
    assert again.expired


def test_a_long_retry_waits_in_the_ledger(ledger_db: LedgerDatabase) -> None:
    """It counts as any retry does, and no tier carries it."""
    (task_id,) = ending(ledger_db, 1, Retry(FAILURE, SPENT, "", 9e6))

    assert ledger_db.task(task_id).attempt == 1
    assert [row.reason for row in rows_of(ledger_db, task_id)] == ["TIME"]
    assert ledger_db.due_in_s(task_id) > 8.9e6


def test_a_row_whose_task_was_called_up_otherwise_is_void(ledger_db: LedgerDatabase) -> None:
    """It goes without a record."""
    (task_id,) = ending(ledger_db, 1, moved(WaitReason.TIME, delay_s=0.0))
    ledger_db.set(tables.task, task_id, fence=7)
    ledger_db.ago(tables.waiting.c.due_at, 1, task_id)

    assert due(ledger_db) == []
    assert rows_of(ledger_db, task_id) == []


def test_a_row_of_a_running_task_is_void(ledger_db: LedgerDatabase) -> None:
    """The sweep may have published its record again before it was called up."""
    (task_id,) = ending(ledger_db, 1, moved(WaitReason.TIME, delay_s=-1.0))
    ledger_db.claimed(task_id, ledger_db.agent().next_owner(), 1)

    assert due(ledger_db) == []
    assert rows_of(ledger_db, task_id) == []


def test_a_task_that_waits_again_has_one_row(ledger_db: LedgerDatabase) -> None:
    """The newest reason counts."""
    (task_id,) = ending(ledger_db, 1, moved(WaitReason.HOURS, "night", delay_s=-1.0))
    owner = ledger_db.agent().next_owner()
    ended(ledger_db, [(ledger_db.claimed(task_id, owner, 1), owner)], moved_for_route())

    assert [(row.reason, row.fence) for row in rows_of(ledger_db, task_id)] == [("ROUTE", 2)]


def test_a_cancelled_task_waits_no_more(ledger_db: LedgerDatabase) -> None:
    """Neither its row nor what its handler kept is left."""
    state = HandlerState(b"{}", 1)
    (task_id,) = ending(ledger_db, 1, replace(moved(WaitReason.TIME), state=state))
    assert ledger_db.count(tables.task_state) == 1

    batch = ledger_db.batch()
    ledger_db.call(cancel.cancel_batch, batch, "me")
    ledger_db.call(cancel.cancel_page, batch.id)

    assert rows_of(ledger_db, task_id) == []
    assert ledger_db.count(tables.task_state) == 0


def test_the_page_of_a_task_says_for_what_it_waits(ledger_db: LedgerDatabase) -> None:
    """From its row; a task that waits for nothing says nothing."""
    (task_id,) = waiting(ledger_db, 1, "fast")
    (other,) = ending(ledger_db, 1, Retry(FAILURE, SPENT, "1h", 3600.0))

    def waits(number: int) -> str:
        key = ledger_db.task(number).task_key.decode()
        story = ledger_db.call(task_story.story, GROUP, BATCH, key)
        return "" if story is None else story.waits

    assert re.fullmatch(r"for route fast, until [-0-9T:.Z+]+ at the latest", waits(task_id))
    assert waits(other) == ""


def test_the_status_counts_who_waits_for_what(ledger_db: LedgerDatabase) -> None:
    """The first due first; the texts name the route."""
    waiting(ledger_db, 3, "fast")
    ending(ledger_db, 1, moved(WaitReason.TIME, delay_s=60.0))
    waits = ledger_db.run(partial(waiting_rows.read, group=GROUP))

    assert [(wait.reason, wait.key, wait.tasks) for wait in waits] == [
        ("TIME", "", 1),
        ("ROUTE", "fast", 3),
    ]
    assert 50 < waits[0].due_s <= 60
    assert waits[0].text.startswith("1 task waits for a time, until ")
    assert waits[1].text.startswith("3 tasks wait for route fast, the first until ")


def test_a_void_row_is_not_counted(ledger_db: LedgerDatabase) -> None:
    """Its task was published anew, and its row stays until an agent deletes it."""
    void, _ = waiting(ledger_db, 2, "fast")
    ledger_db.set(tables.task, void, fence=ledger_db.task(void).fence + 1)

    (wait,) = ledger_db.run(partial(waiting_rows.read, group=GROUP))
    assert wait.tasks == 1
    assert ledger_db.run(partial(waiting_rows.count, group=GROUP)) == 1


def test_a_screen_says_that_more_tasks_wait_than_it_counted(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads as many rows as it may; an autoscaler counts all of them."""
    monkeypatch.setattr(waiting_rows, "MAX_READ", 2)
    ending(ledger_db, 3, moved(WaitReason.TYPE, "invoice"))

    (wait,) = ledger_db.run(partial(waiting_rows.read, group=GROUP))
    assert wait.text.startswith("at least 2 tasks wait for an agent that knows type invoice")
    assert ledger_db.run(partial(waiting_rows.count, group=GROUP)) == 3


# ---- tasks that come later, and handlers that come back


def test_a_task_with_a_time_has_no_record_before_it(ledger_db: LedgerDatabase) -> None:
    """It is pending; its first record is ordered under its fence when its time comes."""
    at = datetime(2090, 1, 1)  # noqa: DTZ001 - as the ledger stores it
    tasks = [replace(new_task(key), not_before=at if key == "b" else None) for key in "abc"]
    accepted = ledger_db.accept(tasks, ledger_db.batch())
    later = accepted.new[1]

    assert sorted(called(accepted.orders)) == sorted({*accepted.new.values()} - {later})
    row = ledger_db.task(later)
    assert (row.status, row.fence, row.due_at) == (Status.PENDING, 0, at)
    assert [wait.due_at for wait in rows_of(ledger_db, later)] == [at]
    for column in (tables.task.c.due_at, tables.waiting.c.due_at):
        ledger_db.ago(column, 1, later)
    (order,) = ledger_db.run(partial(waking.call_up_due, group=GROUP)).orders
    assert [tuple(item) for item in order.items] == [(0, later, 0)]
    assert ledger_db.accept(tasks, ledger_db.batch()).new == {}


def test_a_state_is_kept_until_the_task_succeeds(ledger_db: LedgerDatabase) -> None:
    """Retries and replays keep it; a replay counts the come-backs anew."""
    state = HandlerState(b'{"job":7}', 3)
    (task_id,) = ending(ledger_db, 1, replace(moved(WaitReason.TIME, delay_s=-1.0), state=state))
    owners = count(ledger_db.agent().next_owner())

    def settle(outcome: Outcome) -> None:
        owner = next(owners)
        row = ledger_db.claimed(task_id, owner, ledger_db.task(task_id).fence)
        ledger_db.settle(row, owner, outcome)

    def kept() -> HandlerState | None:
        return ledger_db.call(claiming.handler_state, task_id)

    settle(Retry(FAILURE, SPENT, "30s", -1.0))
    assert kept() == state
    settle(replace(moved(WaitReason.TIME, delay_s=-1.0), state=HandlerState(b"{}", 4)))
    assert kept() == HandlerState(b"{}", 4)
    ledger_db.call(waiting_rows.count_anew, [task_id])
    assert kept() == HandlerState(b"{}", 0)
    settle(SUCCEEDED)
    assert kept() is None


def test_a_come_back_counts_no_attempt_and_books_its_calls(ledger_db: LedgerDatabase) -> None:
    """Its row of the history has the cost; without a call there is none."""
    paid = Moved(FAILURE, SPENT, 1.0, WaitReason.TIME, state=HandlerState(b"{}", 1))
    (task_id,) = ending(ledger_db, 1, paid)
    (other,) = ending(ledger_db, 1, replace(paid, spent=NOTHING_SPENT))

    assert {ledger_db.task(number).attempt for number in (task_id, other)} == {0}
    (row,) = ledger_db.rows(tables.task_attempt)
    assert (row.task_id, row.outcome, row.error_class) == (task_id, "moved", "COME_BACK")
    assert row.cost_micro == SPENT.cost_micro


# ---- those who are told that a reason has ended


def test_tasks_that_wait_for_the_route_are_called_up(ledger_db: LedgerDatabase) -> None:
    """The tasks are due at once, with records on the main topic under the fences of their rows."""
    ids = waiting(ledger_db, 3)
    fences = {task_id: ledger_db.task(task_id).fence for task_id in ids}

    orders = told(ledger_db)

    assert {item.id: item.fence for order in orders for item in order.items} == fences
    assert {ledger_db.status(task_id) for task_id in ids} == {Status.RETRYING}
    assert all(ledger_db.due_in_s(task_id) <= 0 for task_id in ids)
    assert ledger_db.count(tables.waiting) == 0


@pytest.mark.parametrize(
    "outcome",
    [
        moved_for_route("another"),
        moved(WaitReason.GUARD, ROUTE),
        moved(WaitReason.TIME, ROUTE),
        Retry(Failure(ErrorClass.SERVER, "500"), SPENT, "1h", 3600.0),
    ],
)
def test_tasks_that_wait_for_another_reason_stay(
    ledger_db: LedgerDatabase, outcome: Outcome
) -> None:
    """A task that waits for its own delay, its guard or another route is left alone."""
    (task_id,) = ending(ledger_db, 1, outcome)

    assert told(ledger_db) == []
    assert ledger_db.due_in_s(task_id) > 3000


def test_many_agents_call_a_task_up_once(ledger_db: LedgerDatabase) -> None:
    """The second agent finds no row any more."""
    ids = waiting(ledger_db, 5)

    assert sorted(called(told(ledger_db))) == sorted(ids)
    assert told(ledger_db) == []


def test_a_walk_goes_page_by_page(ledger_db: LedgerDatabase) -> None:
    """Every task is called up, whatever else waits and however few are called up at once."""
    ids = waiting(ledger_db, 20)
    others = waiting(ledger_db, 20, "another")

    assert sorted(called(told(ledger_db, limit=3))) == sorted(ids)
    assert all(ledger_db.due_in_s(task_id) > 3000 for task_id in others)


def test_another_groups_tasks_are_left(ledger_db: LedgerDatabase) -> None:
    """The other group has agents of its own."""
    (task_id,) = ending(ledger_db, 1, moved(WaitReason.TIME, delay_s=-1.0))

    assert due(ledger_db, "another") == []
    assert ledger_db.run(partial(waking.keys, group="another", reason=WaitReason.TIME)) == []
    assert due(ledger_db) == [task_id]


def test_the_keys_of_a_reason_are_found_one_by_one(ledger_db: LedgerDatabase) -> None:
    """Each once, in order, the empty one too; those of other reasons are left out."""
    for route in ("b", "a", NO_ROUTE, "a"):
        waiting(ledger_db, 2, route)
    ending(ledger_db, 1, moved(WaitReason.TYPE, "c"))

    assert ledger_db.run(partial(waking.keys, group=GROUP, reason=WaitReason.ROUTE)) == [
        NO_ROUTE,
        "a",
        "b",
    ]


async def test_the_duty_calls_up_all_whose_time_has_come(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page after page, in one check."""
    monkeypatch.setattr(waking, "PAGE", 4)
    ids = ending(ledger_db, 10, moved(WaitReason.TIME, delay_s=-1.0))

    assert sorted(await ObservedWaker(ledger_db).look(1)) == sorted(ids)


@pytest.mark.parametrize("reason", [WaitReason.TYPE, WaitReason.HOURS])
async def test_an_agent_that_knows_a_type_calls_up_its_tasks_at_its_start(
    ledger_db: LedgerDatabase, reason: WaitReason
) -> None:
    """Tasks whose type other agents did not know run at once, and not within the hour.

    So do those of a type whose hours were changed.
    """
    ids = ending(ledger_db, 2, moved(reason, "later"))
    other = ObservedWaker(ledger_db, types=("another",), awake=("another",))
    assert await other.look(30) == []

    ready = ObservedWaker(ledger_db, types=("later",), awake=("later",))
    assert sorted(await ready.look(30)) == sorted(ids)


async def test_changed_settings_call_up_tasks_that_no_route_was_allowed(
    ledger_db: LedgerDatabase,
) -> None:
    """An agent that gains their route runs them at once; one whose route opens leaves them."""
    duty = ObservedWaker(ledger_db)
    await duty.look(60)
    ids = waiting(ledger_db, 2, NO_ROUTE)
    duty.stop()
    await duty.look(2)
    duty.go()
    assert await duty.look(30) == []

    duty.duty.settings_changed()

    assert sorted(await duty.look(30)) == sorted(ids)


async def test_changed_settings_leave_tasks_of_a_closed_route(ledger_db: LedgerDatabase) -> None:
    """The change did not open their route."""
    duty = ObservedWaker(ledger_db)
    duty.stop()
    waiting(ledger_db, 2)

    duty.duty.settings_changed()

    assert await duty.look(30) == []


async def test_tasks_of_a_type_use_up_no_trial_of_a_route(ledger_db: LedgerDatabase) -> None:
    """The first step has a few tasks of the route, however many of a type wait too."""
    kinds = ending(ledger_db, 5, moved(WaitReason.TYPE, "known"), into="kinds")
    theirs = waiting(ledger_db, waker.FEW + 3)

    first = await ObservedWaker(ledger_db, types=("known",)).look(10)

    assert len(first) == 5 + waker.FEW
    assert set(kinds) < set(first)
    assert set(first) < {*kinds, *theirs}


async def test_an_agent_to_which_nothing_happens_asks_one_question(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a time has come; the ledger is not locked or searched each second for nothing."""
    duty, asked = ObservedWaker(ledger_db), count(1)
    ending(ledger_db, 1, moved(WaitReason.TIME))
    await duty.look(30)

    def counted(*_: Any) -> None:
        next(asked)

    for name in ("call_up_due", "call_up_told", "keys"):
        monkeypatch.setattr(waking, name, counted)
    await duty.look(100)
    duty.stop()
    await duty.look(100)

    assert next(asked) == 1


# ---- the duty


@dataclass
class HandClock:
    at_s: float = 100.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        raise AssertionError("no date is asked for")

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s


@dataclass
class ObservedWaker:
    """The duty of one agent, and the orders that it wrote."""

    ledger_db: LedgerDatabase
    types: tuple[str, ...] = ()
    awake: tuple[str, ...] = ()
    table: Router = field(default_factory=lambda: routes(slots=3))
    clock: HandClock = field(default_factory=HandClock)
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.duty = Waker(
            transactions=self.ledger_db.transactions,
            clock=self.clock,
            group=GROUP,
            routes=self.table,
            knows_type=self.types.__contains__,
            is_awake=self.awake.__contains__,
            own_orders=double_of(OwnOrders, send=self.orders.extend),
        )

    async def look(self, seconds: float) -> list[int]:
        """Look each second for this long; return the tasks that were called up."""
        before = len(self.orders)
        until_s = self.clock.at_s + seconds
        while self.clock.at_s < until_s:
            await self.duty.check()
            await self.clock.sleep(1.0)
        return called(self.orders[before:])

    def stop(self, name: str = ROUTE) -> None:
        """Let a route stop."""
        while not self.table.closed(name, self.clock.at_s):
            call(self.table, failed("NETWORK"), self.clock.at_s, name=name)

    def go(self, name: str = ROUTE) -> None:
        """Let a route take calls again."""
        call(self.table, GOOD, self.clock.at_s + 5.0, name=name)


async def test_a_route_that_opens_calls_up_its_tasks(ledger_db: LedgerDatabase) -> None:
    """A few tasks are called up at first, and the others once the route has stayed open."""
    duty = ObservedWaker(ledger_db)
    await duty.look(60)
    duty.stop()
    ids = waiting(ledger_db, 50)
    waiting(ledger_db, 5, "another")
    assert await duty.look(30) == []

    duty.go()

    assert len(await duty.look(5)) == waker.FEW
    await duty.look(waker.FEW_FIRST_S + 5)
    assert sorted(called(duty.orders)) == sorted(ids)


async def test_a_route_that_opens_calls_up_the_tasks_that_may_not_leave_it(
    ledger_db: LedgerDatabase,
) -> None:
    """The route's fallback has taken all other tasks, so the route itself was not waited for."""
    config = {"routes": {ROUTE: RouteConfig(fallback=("spare",)), "spare": RouteConfig()}}
    duty = ObservedWaker(ledger_db, table=routes(slots=3, **config))
    await duty.look(60)
    duty.stop()
    ids = waiting(ledger_db, 3)
    assert await duty.look(30) == []

    duty.go()

    assert sorted(await duty.look(30)) == sorted(ids)


async def test_a_fallback_that_opens_calls_up_the_tasks_of_the_closed_route(
    ledger_db: LedgerDatabase,
) -> None:
    """Both were closed, so the tasks waited for their own route; now they run on the other one."""
    config = {"routes": {ROUTE: RouteConfig(fallback=("spare",)), "spare": RouteConfig()}}
    duty = ObservedWaker(ledger_db, table=routes(slots=3, **config))
    await duty.look(60)
    duty.stop()
    duty.stop("spare")
    ids = waiting(ledger_db, 3)
    assert await duty.look(30) == []

    duty.go("spare")

    assert sorted(await duty.look(30)) == sorted(ids)
    assert duty.table.closed(ROUTE, duty.clock.at_s)


async def test_a_route_that_closes_again_keeps_its_tasks_waiting(
    ledger_db: LedgerDatabase,
) -> None:
    """The route opened for a moment, so only a few tasks were called up."""
    duty = ObservedWaker(ledger_db)
    await duty.look(60)
    duty.stop()
    waiting(ledger_db, 50)
    await duty.look(2)
    duty.go()
    await duty.look(3)
    duty.stop()

    assert await duty.look(60) == []
    assert len(called(duty.orders)) == waker.FEW


async def test_an_agent_that_starts_calls_up_for_all_open_routes(ledger_db: LedgerDatabase) -> None:
    """The routes may have closed and opened before the start.

    Their names may be known from tasks alone.
    """
    open_ids = [*waiting(ledger_db, 3), *waiting(ledger_db, 3, "some-model")]
    duty = ObservedWaker(ledger_db)
    duty.stop("closed")
    waiting(ledger_db, 3, "closed")

    await duty.look(40)

    assert sorted(called(duty.orders)) == sorted(open_ids)
