"""A batch whose tasks are all refused is held back after a dozen refusals.

The cause is a wrong parameter. A batch with only some bad tasks is not held back.
"""

from dataclasses import replace

import pytest

from docllm.agent.ports.outcome import Dead, Failure, FollowUp
from docllm.producer.ledger import store
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from tests.contract.guards.duty import (
    ObservedKeeper,
    fail_as_a_whole,
    let_through,
    looking,
    run_in_look,
    the,
    whole_look,
)
from tests.contract.guards.steps import claimed, deaths, end, ended, exhausted, raised, refused
from tests.support.ledger_database import BATCH, SPENT, SUCCEEDED, LedgerDatabase, new_task


def test_a_batch_whose_first_dozen_are_refused_for_one_reason_is_held_back(
    ledger_db: LedgerDatabase,
) -> None:
    """Twelve tasks die, and then the guard is raised.

    Tasks in flight at that moment wait in the longest tier, uncounted, whoever settles them.
    """
    inflight = claimed(ledger_db, 150)
    end(ledger_db, SUCCEEDED, into="healthy")

    ended(ledger_db, inflight[:5], *[refused()] * 5)
    ended(ledger_db, inflight[5:80], *[refused()] * 75)
    ended(ledger_db, inflight[80:], *[refused()] * 70)

    assert deaths(ledger_db) == 12
    (guard,) = raised(ledger_db)
    assert (guard.batch, guard.cause) == (BATCH, "bad_request")
    assert guard.reason == (
        "all 12 tasks that ended were refused for the same reason, and none has succeeded; "
        "BAD_REQUEST: 400: unknown parameter: temprature"
    )
    held = [ledger_db.task(row.task_id) for row, _ in inflight[12:]]
    assert {(row.status, row.owner, row.attempt, row.fence) for row in held} == {
        (Status.RETRYING, 0, 0, 1)
    }
    assert ledger_db.due_in_s(held[0].id) > 3590


def test_a_batch_with_some_bad_tasks_is_not_held_back(ledger_db: LedgerDatabase) -> None:
    """One success shows that the parameters are right.

    It may come before the refusals or in the same transaction.
    """
    end(ledger_db, SUCCEEDED, *[refused()] * 30)
    end(ledger_db, *[refused()] * 30)
    end(ledger_db, *[refused()] * 11, into="another")
    end(ledger_db, SUCCEEDED, refused(), into="another")
    end(ledger_db, *[refused()] * 30, into="another")

    assert raised(ledger_db) == []
    assert deaths(ledger_db) == 102


def test_a_key_that_has_succeeded_is_not_locked_for_a_refusal(ledger_db: LedgerDatabase) -> None:
    """Agents of a batch with many bad tasks do not wait for each other."""
    end(ledger_db, SUCCEEDED)
    end(ledger_db, refused())

    assert ledger_db.count(tables.guard) == 0


def test_refusals_for_different_reasons_are_the_tasks_own(ledger_db: LedgerDatabase) -> None:
    """The documents are bad, each in its own way, so no guard is raised."""
    end(ledger_db, *[refused("error " + "x" * number) for number in range(1, 40)])

    assert raised(ledger_db) == []


def test_another_type_of_the_same_batch_goes_on(ledger_db: LedgerDatabase) -> None:
    """A guard is about (batch, type, route), so another route of the batch has its own guard."""
    end(ledger_db, *[refused()] * 12)

    end(ledger_db, refused(), route="another")

    assert deaths(ledger_db) == 13
    assert [guard.route for guard in raised(ledger_db)] == ["route"]


def test_other_deaths_and_used_up_attempts_under_a_guard_for_refusals(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that fails by its own input dies.

    A task whose attempts are used up waits, as under every guard.
    """
    end(ledger_db, SUCCEEDED, into="healthy")
    end(ledger_db, *[refused()] * 12)

    end(ledger_db, Dead(Failure(ErrorClass.TOO_LONG, "too long"), SPENT), exhausted())
    held = [row for row in ledger_db.rows(tables.task) if row.status == Status.RETRYING]

    assert len(held) == 1
    assert deaths(ledger_db) == 13


async def test_looks_over_refusals_double_and_stay_apart(ledger_db: LedgerDatabase) -> None:
    """A wrong parameter costs tens of tasks: twelve, then 1, 2 and 4 in looks.

    The looks are five minutes apart.
    """
    claims = claimed(ledger_db, 40)
    ended(ledger_db, claims, *[refused()] * 40)
    waiting = [row.task_id for row, _ in claims[12:]]
    keeper = ObservedKeeper(ledger_db)
    sizes = []

    for _ in range(3):
        sizes.append(await whole_look(ledger_db, keeper, waiting, refused()))
        waiting = waiting[sizes[-1] :]
        assert 290 < the(raised(ledger_db)).next_look_in_s <= 300

    assert sizes == [1, 2, 4]
    assert deaths(ledger_db) == 12 + 7


async def test_a_success_in_a_look_opens_a_guard_for_refusals(ledger_db: LedgerDatabase) -> None:
    """The first dozen were bad by chance; from now on each task is judged by itself."""
    claims = claimed(ledger_db, 14)
    ended(ledger_db, claims, *[refused()] * 14)
    task_id = claims[12][0].task_id
    keeper = ObservedKeeper(ledger_db)
    await looking(ledger_db, keeper)
    let_through(ledger_db, task_id)

    run_in_look(ledger_db, task_id, SUCCEEDED)
    await keeper.keep_once()

    assert raised(ledger_db) == []
    end(ledger_db, *[refused()] * 20)
    assert raised(ledger_db) == []


async def test_a_guard_with_no_tasks_left_is_opened_and_forgives_nothing(
    ledger_db: LedgerDatabase,
) -> None:
    """The batch has no tasks left, because all of them were refused.

    Of tasks that come later, as from an inbox, one dies, and the guard is raised again.
    """
    end(ledger_db, *[refused()] * 12)

    await ObservedKeeper(ledger_db).keep_once()
    assert raised(ledger_db) == []
    end(ledger_db, *[refused()] * 30)

    assert deaths(ledger_db) == 13
    assert [guard.cause for guard in raised(ledger_db)] == ["bad_request"]


# ---- what else ends a guard


def test_a_new_load_of_the_batch_opens_its_guards(ledger_db: LedgerDatabase) -> None:
    """A person who loads the batch again has repaired it, so a dozen more tasks may be refused.

    A load of another batch changes nothing.
    """
    end(ledger_db, *[refused()] * 13)

    own_batch, others = ledger_db.batch(), ledger_db.batch("another")
    ledger_db.run(lambda c: store.begin_load(c, others))
    assert len(raised(ledger_db)) == 1
    ledger_db.run(lambda c: store.begin_load(c, own_batch))

    assert raised(ledger_db) == []
    assert ledger_db.rows(tables.audit)[-1].detail.endswith("the batch was loaded again")
    end(ledger_db, *[refused()] * 11)
    assert raised(ledger_db) == []
    end(ledger_db, refused())
    assert len(raised(ledger_db)) == 1


def test_a_cancel_opens_the_guards_of_its_batch(ledger_db: LedgerDatabase) -> None:
    """No task of a cancelled batch is to wait any more."""
    fail_as_a_whole(ledger_db)
    end(ledger_db, *[refused()] * 13, into="other")

    ledger_db.cancel()

    assert [guard.batch for guard in raised(ledger_db)] == ["other"]


# ---- a key that ends well


def a_good_run(ledger_db: LedgerDatabase, *, left: int, closed: bool = True) -> None:
    """Let 1,200 tasks of a batch succeed and `left` wait."""
    claims = claimed(ledger_db, 1200)
    ended(ledger_db, claims, *[SUCCEEDED] * 1200)
    ledger_db.load(*(f"left {number}" for number in range(left)))
    if closed:
        whole = ledger_db.batch()
        ledger_db.run(lambda c: store.close_batch(c, whole))


def test_a_long_good_run_is_not_held_back_at_its_end(ledger_db: LedgerDatabase) -> None:
    """The batch's last 55 tasks are bad: they are fewer than five in a hundred, and they die."""
    a_good_run(ledger_db, left=0)

    end(ledger_db, *[exhausted()] * 55)

    assert (deaths(ledger_db), raised(ledger_db)) == (55, [])


def test_a_good_run_with_much_left_is_held_back(ledger_db: LedgerDatabase) -> None:
    """A release that breaks in the middle of a batch must not empty it into the dead letters."""
    a_good_run(ledger_db, left=100)

    end(ledger_db, *[exhausted()] * 55)

    assert deaths(ledger_db) == 10
    assert [guard.cause for guard in raised(ledger_db)] == ["handler"]


def test_a_batch_that_still_grows_has_no_end(ledger_db: LedgerDatabase) -> None:
    """Nobody knows how many tasks an inbox or a running load will still bring."""
    a_good_run(ledger_db, left=0, closed=False)

    end(ledger_db, *[exhausted()] * 55)

    assert deaths(ledger_db) == 10


@pytest.mark.parametrize(("grows", "dead"), [(False, 55), (True, 10)])
def test_open_tasks_of_other_types_may_order_more(
    ledger_db: LedgerDatabase, *, grows: bool, dead: int
) -> None:
    """While a hundred parents are open, nobody knows how many follow-ups are still to come."""
    a_good_run(ledger_db, left=0)
    if grows:
        child = FollowUp(
            key="child",
            value=b"line",
            type="document",
            tenant="",
            max_attempts=5,
            deadline=None,
            lane=Lane.NORMAL,
        )
        end(ledger_db, replace(SUCCEEDED, follow_ups=(child,)))
    parents = [replace(new_task(f"book {number}"), type="book") for number in range(100)]
    ledger_db.accept(parents, ledger_db.batch())

    end(ledger_db, *[exhausted()] * 55)

    assert deaths(ledger_db) == dead
