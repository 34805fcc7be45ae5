"""Tasks that were moved to a tier because their route was closed run again once it is open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pytest

from docllm.agent.judge.guard_rule import closed_text
from docllm.agent.judge.tiers import move_to
from docllm.agent.ledger.claims import call_up
from docllm.agent.maintenance.waits import call_up_walk
from docllm.agent.maintenance.waits.call_up_walk import CallUpWalk
from docllm.agent.ports import Order
from docllm.agent.ports.outcome import Failure, Moved, Outcome, Retry
from docllm.agent.routes import RoutePlan, Router
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger import tables
from docllm.schemas.settings.config import RouteConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.states import Status
from tests.contract.guards.steps import claimed, ended
from tests.support.doubles import double_of
from tests.support.ledger_database import BATCH, GROUP, LONGEST, SPENT, LedgerDatabase
from tests.support.routes import GOOD, ROUTE, call, failed, routes


def waiting(ledger_db: LedgerDatabase, number: int, route: str = ROUTE) -> list[int]:
    """Return new tasks that were moved because this route was closed."""
    return ending(ledger_db, number, lambda task_id: closed(route, task_id))


def closed(route: str, task_id: int) -> Moved:
    return move_to(LONGEST, Failure(ErrorClass.ROUTE, closed_text(route)), SPENT, task_id)


def ending(
    ledger_db: LedgerDatabase, number: int, outcome: Callable[[int], Outcome], into: str = BATCH
) -> list[int]:
    """Return new tasks that were settled with this outcome."""
    claims = claimed(ledger_db, number, into)
    ended(ledger_db, claims, *[outcome(row.task_id) for row, _ in claims])
    return [row.task_id for row, _ in claims]


def called(orders: Sequence[Order]) -> list[int]:
    assert {order.destination for order in orders} <= {"tasks"}
    return [item.id for order in orders for item in order.items]


def walk(
    ledger_db: LedgerDatabase,
    wanted: Callable[[str], bool] = lambda route: route == ROUTE,
    limit: int = 500,
) -> list[Order]:
    """Walk through all waiting tasks; return the orders."""
    orders: list[Order] = []
    cursor = None
    while True:
        page = ledger_db.run(
            partial(call_up.step, group=GROUP, is_wanted=wanted, limit=limit, cursor=cursor)
        )
        orders += page.orders
        cursor = page.cursor
        if cursor is None:
            return orders


def test_tasks_that_wait_for_the_route_are_called_up(ledger_db: LedgerDatabase) -> None:
    """The tasks are due at once, with records on the main topic under the fences of their rows."""
    ids = waiting(ledger_db, 3)
    fences = {task_id: ledger_db.task(task_id).fence for task_id in ids}

    orders = walk(ledger_db)

    assert {item.id: item.fence for order in orders for item in order.items} == fences
    assert {ledger_db.status(task_id) for task_id in ids} == {Status.RETRYING}
    assert all(ledger_db.due_in_s(task_id) <= 0 for task_id in ids)


@pytest.mark.parametrize(
    "outcome",
    [
        lambda task_id: closed("another", task_id),
        lambda task_id: move_to(LONGEST, Failure(ErrorClass.GUARD, "why"), SPENT, task_id),
        lambda task_id: move_to(
            LONGEST, Failure(ErrorClass.GUARD, closed_text(ROUTE)), SPENT, task_id
        ),
        lambda _: Retry(Failure(ErrorClass.SERVER, closed_text(ROUTE)), SPENT, "1h", 3600.0),
    ],
)
def test_tasks_that_wait_for_another_reason_stay(
    ledger_db: LedgerDatabase, outcome: Callable[[int], Outcome]
) -> None:
    """A task that waits for its own delay, its guard or another route is left alone."""
    (task_id,) = ending(ledger_db, 1, outcome)

    assert walk(ledger_db) == []
    assert ledger_db.due_in_s(task_id) > 3000


def test_the_newest_attempt_decides(ledger_db: LedgerDatabase) -> None:
    """A task that was moved, called up, and then failed waits for its own delay."""
    (task_id,) = waiting(ledger_db, 1)
    walk(ledger_db)
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner, ledger_db.task(task_id).fence)
    ledger_db.settle(row, owner, Retry(Failure(ErrorClass.SERVER, "500"), SPENT, "1h", 3600.0))

    assert walk(ledger_db) == []


async def test_an_agent_that_knows_a_type_calls_up_its_tasks_at_its_start(
    ledger_db: LedgerDatabase,
) -> None:
    """Tasks whose type other agents did not know run at once, and not within the hour."""
    unknown = Failure(ErrorClass.UNKNOWN_TYPE, "no agent that received it knows type document")
    ids = ending(ledger_db, 2, lambda task_id: move_to(LONGEST, unknown, SPENT, task_id))
    assert walk(ledger_db) == walk(ledger_db, lambda _route: True) == []

    assert await ObservedCallUp(ledger_db, types=("another",)).look(30) == []

    assert sorted(await ObservedCallUp(ledger_db, types=("document",)).look(30)) == sorted(ids)


REFUSALS = (
    RoutePlan("lost", known=False).refusal,
    RoutePlan("fast", allowed=frozenset({"spare"})).refusal,
)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_changed_settings_call_up_tasks_that_no_route_was_allowed(
    ledger_db: LedgerDatabase, refusal: str
) -> None:
    """An agent that gains their route runs them at once; one whose route opens leaves them."""
    duty = ObservedCallUp(ledger_db)
    await duty.look(60)
    failure = Failure(ErrorClass.ROUTE, refusal)
    ids = ending(ledger_db, 2, lambda task_id: move_to(LONGEST, failure, SPENT, task_id))
    duty.stop()
    await duty.look(2)
    duty.go()
    assert await duty.look(30) == []

    duty.duty.settings_changed()

    assert sorted(await duty.look(30)) == sorted(ids)


async def test_changed_settings_leave_tasks_of_a_closed_route(ledger_db: LedgerDatabase) -> None:
    """The change did not open their route."""
    duty = ObservedCallUp(ledger_db)
    duty.stop()
    waiting(ledger_db, 2)

    duty.duty.settings_changed()

    assert await duty.look(30) == []


async def test_an_agent_that_starts_calls_up_tasks_that_no_route_was_allowed(
    ledger_db: LedgerDatabase,
) -> None:
    """It may have the route that the agents before it did not have."""
    failure = Failure(ErrorClass.ROUTE, REFUSALS[0])
    ids = ending(ledger_db, 2, lambda task_id: move_to(LONGEST, failure, SPENT, task_id))

    assert sorted(await ObservedCallUp(ledger_db).look(30)) == sorted(ids)


def test_tasks_of_a_type_use_up_no_trial_of_a_route(ledger_db: LedgerDatabase) -> None:
    """The first step has a few tasks of the route, however many of another type come first."""

    def of_type(task_id: int) -> Moved:
        failure = Failure(ErrorClass.UNKNOWN_TYPE, "no agent that received it knows the type")
        return move_to(LONGEST, failure, SPENT, task_id)

    kinds = ending(ledger_db, 5, of_type, into="kinds")
    theirs = waiting(ledger_db, 3)
    ledger_db.ago(tables.task.c.due_at, -9000, *theirs)  # the last of the walk
    arguments: dict[str, Any] = {"group": GROUP, "is_wanted": lambda _: True, "limit": 2}

    def step(cursor: call_up.CallUpCursor | None) -> call_up.CallUpPage:
        return ledger_db.run(
            partial(call_up.step, cursor=cursor, knows_type=lambda _: True, **arguments)
        )

    first = step(None)
    second = step(first.cursor)

    assert len(called(first.orders)) == 7
    assert set(kinds) < set(called(first.orders))
    assert first.for_routes
    assert set(called(first.orders) + called(second.orders)) == {*kinds, *theirs}


def test_many_agents_call_a_task_up_once(ledger_db: LedgerDatabase) -> None:
    """The second agent sees that the task is due already."""
    ids = waiting(ledger_db, 5)

    assert sorted(called(walk(ledger_db))) == sorted(ids)
    assert walk(ledger_db) == []


def test_a_walk_goes_page_by_page(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task is called up, whatever else waits and however few are called up at once."""
    monkeypatch.setattr(call_up, "SCAN", 7)
    ids = waiting(ledger_db, 20)
    others = waiting(ledger_db, 20, "another")

    assert sorted(called(walk(ledger_db, limit=3))) == sorted(ids)
    assert all(ledger_db.due_in_s(task_id) > 3000 for task_id in others)


def test_tasks_that_are_due_at_the_same_moment_are_all_met(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may end between tasks with the same due time."""
    monkeypatch.setattr(call_up, "SCAN", 4)
    ids = waiting(ledger_db, 10)
    ledger_db.ago(tables.task.c.due_at, -3600, *ids)

    assert sorted(called(walk(ledger_db))) == sorted(ids)


def test_another_groups_tasks_are_left(ledger_db: LedgerDatabase) -> None:
    """The other group has agents of its own."""
    waiting(ledger_db, 1)
    assert (
        ledger_db.run(
            lambda c: call_up.step(
                c, group="another", is_wanted=lambda _: True, limit=500, cursor=None
            )
        ).orders
        == []
    )


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
class ObservedCallUp:
    """The duty of one agent, and the orders that it wrote."""

    ledger_db: LedgerDatabase
    types: tuple[str, ...] = ()
    table: Router = field(default_factory=lambda: routes(slots=3))
    clock: HandClock = field(default_factory=HandClock)
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = 0
        self.duty = CallUpWalk(
            transactions=self.ledger_db.transactions,
            clock=self.clock,
            group=GROUP,
            routes=self.table,
            knows_type=self.types.__contains__,
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
    duty = ObservedCallUp(ledger_db)
    await duty.look(60)
    duty.stop()
    ids = waiting(ledger_db, 50)
    waiting(ledger_db, 5, "another")
    assert await duty.look(30) == []

    duty.go()

    assert len(await duty.look(5)) == call_up_walk.FEW
    await duty.look(call_up_walk.FEW_FIRST_S + 5)
    assert sorted(called(duty.orders)) == sorted(ids)


async def test_a_route_that_opens_calls_up_the_tasks_that_may_not_leave_it(
    ledger_db: LedgerDatabase,
) -> None:
    """The route's fallback has taken all other tasks, so the route itself was not waited for."""
    config = {"routes": {ROUTE: RouteConfig(fallback=("spare",)), "spare": RouteConfig()}}
    duty = ObservedCallUp(ledger_db, table=routes(slots=3, **config))
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
    duty = ObservedCallUp(ledger_db, table=routes(slots=3, **config))
    await duty.look(60)
    duty.stop()
    duty.stop("spare")
    ids = waiting(ledger_db, 3)
    assert await duty.look(30) == []

    duty.go("spare")

    assert sorted(await duty.look(30)) == sorted(ids)
    assert duty.table.closed(ROUTE, duty.clock.at_s)


async def test_a_route_that_closes_again_keeps_its_tasks_in_the_tier(
    ledger_db: LedgerDatabase,
) -> None:
    """The route opened for a moment, so only a few tasks were called up."""
    duty = ObservedCallUp(ledger_db)
    await duty.look(60)
    duty.stop()
    waiting(ledger_db, 50)
    await duty.look(2)
    duty.go()
    await duty.look(3)
    duty.stop()

    assert await duty.look(60) == []
    assert len(called(duty.orders)) == call_up_walk.FEW


async def test_an_agent_that_starts_calls_up_for_all_open_routes(ledger_db: LedgerDatabase) -> None:
    """The routes may have closed and opened before the start.

    Their names may be known from tasks alone.
    """
    open_ids = [*waiting(ledger_db, 3), *waiting(ledger_db, 3, "some-model")]
    duty = ObservedCallUp(ledger_db)
    duty.stop("closed")
    waiting(ledger_db, 3, "closed")

    await duty.look(40)

    assert sorted(called(duty.orders)) == sorted(open_ids)


async def test_without_a_route_that_opened_nothing_is_asked(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is not read each second for nothing."""
    duty, asked = ObservedCallUp(ledger_db), count(1)
    step = call_up.step

    def counted(*args: Any) -> call_up.CallUpPage:
        next(asked)
        return step(*args)

    monkeypatch.setattr(call_up, "step", counted)

    await duty.look(100)
    duty.stop()
    await duty.look(100)

    assert next(asked) == 2  # one step ran, at the start
