"""The progress of a group is right after each move, and says what open tasks wait for."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from docllm.agent.ports.outcome import Outcome
from docllm.producer.ledger import long_waits
from docllm.producer.ledger.long_waits import LongWait, WaitingTasks
from docllm.producer.ledger.status import progress
from docllm.producer.ledger.status.progress import Totals, Waiting
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.tables import task
from tests.contract.support.ledger_dead import dead, replayed
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SNOOZE,
    SUCCEEDED,
    LedgerDatabase,
)


def totals(ledger_db: LedgerDatabase) -> Totals:
    return ledger_db.call(progress.read_totals, GROUP)


def waiting(ledger_db: LedgerDatabase) -> Waiting:
    return ledger_db.call(progress.waiting, GROUP)


def waits(ledger_db: LedgerDatabase, group: str = GROUP, **of: str) -> list[LongWait]:
    return ledger_db.call(long_waits.read, WaitingTasks(group, **of))


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (SUCCEEDED, (0, 1, 0, 0)),
        (DEAD, (0, 0, 1, 0)),
        (RETRY, (1, 0, 0, 1)),
        (SNOOZE, (1, 0, 0, 0)),
        (RELEASED, (1, 0, 0, 0)),
    ],
)
def test_each_outcome_is_counted_where_it_belongs(
    ledger_db: LedgerDatabase, outcome: Outcome, counts: tuple[int, ...]
) -> None:
    """Tasks that are open, succeeded or dead, and failed attempts that are tried again.

    A snooze, as in an outage, is no failed attempt, and moves nothing.
    """
    (task_id,) = ledger_db.load("a")
    ledger_db.load("z", into="theirs", group="other")
    assert totals(ledger_db) == Totals(open=1)

    ledger_db.settled(task_id, outcome)

    now = totals(ledger_db)
    assert (now.open, now.succeeded, now.dead, now.retried) == counts
    assert sum(now.dead_by_class.values()) == now.dead
    assert sum(now.cost_by_model.values()) == now.cost_micro == outcome.spent.cost_micro


def test_an_empty_group_has_no_progress(ledger_db: LedgerDatabase) -> None:
    """Nothing was loaded and nothing waits."""
    assert (totals(ledger_db), waiting(ledger_db)) == (Totals(), Waiting())


def test_a_wait_is_named(ledger_db: LedgerDatabase) -> None:
    """Retries with the time of the first, running tasks by agent, and half-loaded batches."""
    first, second, _ = ledger_db.load("a", "b", "c")
    ledger_db.settled(first, RETRY)
    lease = ledger_db.agent()
    ledger_db.claimed(second, lease.next_owner())

    found = waiting(ledger_db)

    assert found.retrying == 1
    assert found.due_s is not None
    assert 0 < found.due_s < 120
    assert found.running == {lease.agent_id: 1}
    assert lease.agent_id in found.names
    assert found.orders > 0


def test_a_refused_task_waits_for_a_try(ledger_db: LedgerDatabase) -> None:
    """A task that waits for its first attempt is none of them, nor is one of another group."""
    first, _ = ledger_db.load("a", "b")
    ledger_db.settled(first, SNOOZE)

    found = waiting(ledger_db)
    elsewhere = ledger_db.call(progress.waiting, "other")

    assert (found.snoozed, found.retrying, elsewhere.snoozed) == (1, 0, 0)
    assert found.snoozed_due_s is not None
    assert 0 < found.snoozed_due_s < 120


def test_a_long_wait_after_a_refused_call_is_told_from_a_short_one(
    ledger_db: LedgerDatabase,
) -> None:
    """Only waits of over a minute count; those in a tier are not after a refused call."""
    short, long, tier = ledger_db.load("short", "long", "tier")
    ledger_db.settled(short, SNOOZE)
    ledger_db.settled(long, replace(SNOOZE, delay_s=600.0))
    ledger_db.settled(tier, replace(RETRY, delay_s=600.0))

    (wait,) = waits(ledger_db)

    assert (wait.route, wait.tasks) == ("route", 1)
    assert wait.due_s == pytest.approx(600.0, abs=30.0)
    assert waits(ledger_db, group="other") == []
    for of in ({"key": "long"}, {"batch": BATCH}, {"type": "document"}, {"tenant": ""}):
        assert len(waits(ledger_db, **of)) == 1
    for of in ({"key": "short"}, {"batch": "other"}, {"type": "other"}, {"tenant": "other"}):
        assert waits(ledger_db, **of) == []


def test_totals_say_when_retries_are_due(ledger_db: LedgerDatabase) -> None:
    """The number of the attempt, when it is due, and when the last one would be."""
    first, second, _ = ledger_db.load("a", "b", "c")
    assert totals(ledger_db).retries == ""
    ledger_db.settled(first, replace(RETRY, delay_s=3600.0))

    one = ledger_db.call(progress.read_totals, GROUP, lambda _: ("30s", "1h"))
    ledger_db.settled(second, RETRY)
    ledger_db.set(tables.task, second, attempt=2, max_attempts=3)
    both = totals(ledger_db)

    assert one.retries.startswith("1 waits for its second try at ")
    assert ", the last at " in one.retries
    assert one.later_left_s == pytest.approx(3600.0, abs=30.0)
    assert both.retries.startswith("2 wait for their next try, the first at ")
    assert both.later == 2
    assert both.later_left_s == pytest.approx(3600.0, abs=30.0)
    assert ledger_db.call(progress.read_totals, "other").retries == ""


def test_a_replay_is_more_work_and_takes_no_end_away(ledger_db: LedgerDatabase) -> None:
    """A dead task that is replayed is open again; its first end stays counted."""
    dead(ledger_db, "a")
    assert totals(ledger_db).open == 0

    replayed(ledger_db)

    now = totals(ledger_db)
    assert (now.open, now.dead, sum(now.dead_by_class.values())) == (1, 1, 1)


def test_a_resume_ends_long_waits_for_agents_that_start_later(ledger_db: LedgerDatabase) -> None:
    """Only the waits on the resumed route end, and only those of the group."""
    mine, other = ledger_db.load("a", "b")
    (theirs,) = ledger_db.load("c", into="theirs", group="other")
    for task_id in (mine, other, theirs):
        ledger_db.settled(task_id, replace(SNOOZE, delay_s=600.0))
    ledger_db.run(lambda c: c.execute(update(task).where(task.c.id == other).values(route="b")))
    (route,) = {wait.route for wait in waits(ledger_db)} - {"b"}

    ledger_db.call(long_waits.resume, GROUP, route, "somebody@host")

    assert [wait.route for wait in waits(ledger_db)] == ["b"]
    assert [wait.tasks for wait in waits(ledger_db, "other")] == [1]
