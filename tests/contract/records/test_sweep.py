"""The sweep finds tasks that no record can reach, and nothing else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from docllm.agent.ledger.recovery import sweeping
from docllm.producer.ledger import outbox
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ports import Item
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from tests.support.ledger_database import GROUP, RETRY, SUCCEEDED, LedgerDatabase

SLACK_S = 600.0


TIERS = ("retry.30s", "retry.1h")


def swept(
    ledger_db: LedgerDatabase, tasks: datetime | None = None, tiers: datetime | None = None
) -> int:
    """Sweep once, with the oldest record of `tasks` and of the retry topics; None: all is read."""
    oldest = min((time for time in (tasks, tiers) if time is not None), default=None)
    pending = sweeping.StatusTopics(Status.PENDING, ("tasks",), tasks)
    coverage = [pending, sweeping.StatusTopics(Status.RETRYING, ("tasks", *TIERS), oldest)]
    return ledger_db.call(sweeping.replace_lost_records, GROUP, coverage, SLACK_S)


def walked(
    ledger_db: LedgerDatabase,
    after: sweeping.SweepCursor | None = None,
    status: Status = Status.PENDING,
    **horizons: datetime | None,
) -> tuple[int, sweeping.SweepCursor | None]:
    """Walk one step; by default everything is read but the topic `tasks.bulk`."""
    oldest = {"tasks.urgent": None, "tasks": None, "tasks.bulk": utc_ago(86_400)} | horizons
    carriers = [sweeping.StatusTopics(status, (name,), time) for name, time in oldest.items()]
    return ledger_db.call(
        sweeping.replace_lost_by_carrier,
        group=GROUP,
        carriers=carriers,
        after=after,
        slack_s=SLACK_S,
    )


def in_bulk(ledger_db: LedgerDatabase, *task_ids: int) -> None:
    """Let these tasks wait in the bulk lane."""
    for task_id in task_ids:
        ledger_db.set(tables.task, task_id, lane=int(Lane.BULK), carrier=Lane.BULK.destination)


def utc_ago(seconds: float) -> datetime:
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=seconds)


def test_a_task_that_waits_for_long_without_a_record_is_ordered(ledger_db: LedgerDatabase) -> None:
    """With no lag anywhere, a task due for longer than the slack has no carrier.

    It is ordered at once, and only once.
    """
    lost, fresh = ledger_db.load("lost", "fresh")
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, lost)

    assert swept(ledger_db) == 1
    assert swept(ledger_db) == 0

    (order,) = ledger_db.rows(tables.outbox)
    assert (order.destination, outbox.unpack(order.items)) == (
        "tasks",
        (Item(TASK, lost, 0),),
    )
    assert -60 < ledger_db.due_in_s(lost) <= 0
    assert ledger_db.status(fresh) is Status.PENDING


def test_a_retry_that_was_lost_is_ordered_with_its_fence(ledger_db: LedgerDatabase) -> None:
    """The new record carries the fence of the row, or it would be stale."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, RETRY)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, task_id)

    assert swept(ledger_db) == 1
    assert outbox.unpack(ledger_db.rows(tables.outbox)[0].items) == (Item(TASK, task_id, 1),)
    assert ledger_db.status(task_id) is Status.RETRYING


def test_a_task_behind_the_horizon_still_has_its_record(ledger_db: LedgerDatabase) -> None:
    """A task due after the oldest uncommitted record may still have its record unread.

    The slack is subtracted from that record's time.
    """
    old, young = ledger_db.load("old", "young")
    ledger_db.ago(tables.task.c.due_at, 7200, old)
    ledger_db.ago(tables.task.c.due_at, 3600, young)

    assert swept(ledger_db, utc_ago(7200)) == 0
    assert swept(ledger_db, utc_ago(3600)) == 1
    assert outbox.unpack(ledger_db.rows(tables.outbox)[0].items) == (Item(TASK, old, 0),)


def retrying(ledger_db: LedgerDatabase, task_id: int) -> None:
    """Let a task's attempt fail, and its record reach a retry topic."""
    ledger_db.settled(task_id, RETRY)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))


def test_a_long_tier_does_not_delay_what_was_lost_from_tasks(ledger_db: LedgerDatabase) -> None:
    """A pending task's record is on `tasks`, which is read to its end.

    Unread records in a tier belong to other tasks.
    """
    lost, waits = ledger_db.load("lost", "waits")
    retrying(ledger_db, waits)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)

    assert swept(ledger_db, tiers=utc_ago(3600)) == 1
    assert outbox.unpack(ledger_db.rows(tables.outbox)[0].items) == (Item(TASK, lost, 0),)


def test_a_retrying_task_is_not_swept_while_its_record_may_be_on_any_topic(
    ledger_db: LedgerDatabase,
) -> None:
    """An opened guard publishes the record on `tasks`.

    So an unread record there may be the task's, as in its tier.
    """
    (task_id,) = ledger_db.load("a")
    retrying(ledger_db, task_id)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, task_id)

    assert swept(ledger_db, tasks=utc_ago(3600)) == 0
    assert swept(ledger_db, tiers=utc_ago(3600)) == 0
    assert swept(ledger_db) == 1


def test_an_order_for_another_topic_does_not_delay_the_sweep(
    ledger_db: LedgerDatabase,
) -> None:
    """An old order for a retry topic or the dead letters is no record of a pending task."""
    lost, waits = ledger_db.load("lost", "waits")
    retrying(ledger_db, waits)
    for destination in ("dlq", TIERS[0]):
        items = [Item(TASK, waits, 1)]
        ledger_db.call(outbox.place, GROUP, destination, items)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)
    ledger_db.ago(tables.outbox.c.due_at, SLACK_S + 90)

    assert swept(ledger_db) == 1
    assert outbox.unpack(ledger_db.rows(tables.outbox)[-1].items) == (Item(TASK, lost, 0),)


def test_nothing_is_swept_while_an_older_order_waits(ledger_db: LedgerDatabase) -> None:
    """The tasks of that order look as if they had no record, so the relay comes first."""
    lost, other = ledger_db.load("lost", "other")
    (order,) = ledger_db.call(outbox.place, GROUP, "tasks", [Item(TASK, other, 0)])
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, lost)
    ledger_db.ago(tables.outbox.c.due_at, SLACK_S + 30, order.id)
    assert swept(ledger_db) == 0

    ledger_db.call(outbox.shrink, order, [])

    assert swept(ledger_db) == 1


def test_a_younger_order_does_not_stop_the_sweep(ledger_db: LedgerDatabase) -> None:
    """Orders within their grace are no reason to wait."""
    (lost,) = ledger_db.load("lost")
    ledger_db.call(outbox.place, GROUP, "tasks", [Item(TASK, lost, 0)])
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, lost)

    assert swept(ledger_db) == 1


def test_only_waiting_tasks_of_the_group_are_swept(ledger_db: LedgerDatabase) -> None:
    """Running and final tasks, cancelled batches and other groups are left alone."""
    running, done = ledger_db.load("running", "done")
    owner = ledger_db.agent().next_owner()
    ledger_db.claimed(running, owner)
    ledger_db.settle(ledger_db.claimed(done, owner), owner, SUCCEEDED)
    ledger_db.load("doomed", into="cancelled")
    ledger_db.cancel("cancelled")
    ledger_db.load("theirs", into="elsewhere", group="other")
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)

    assert swept(ledger_db) == 0


def test_a_sweep_takes_a_page_at_a_time(ledger_db: LedgerDatabase) -> None:
    """Lost tasks beyond one page are found by the next calls, the oldest first."""
    ids = ledger_db.load(*(f"task {number}" for number in range(sweeping.PAGE + 10)))
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 90, ids[-1])

    assert [swept(ledger_db), swept(ledger_db), swept(ledger_db)] == [sweeping.PAGE, 10, 0]
    assert Item(TASK, ids[-1], 0) in outbox.unpack(ledger_db.rows(tables.outbox)[0].items)


def test_brokers_whose_clock_is_ahead_sweep_nothing_that_is_not_overdue(
    ledger_db: LedgerDatabase,
) -> None:
    """The horizon is an append time of the brokers' clock.

    A retry that is due later would run too soon.
    """
    early, overdue = ledger_db.load("early", "overdue")
    ledger_db.ago(tables.task.c.due_at, -60, early)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, overdue)

    assert swept(ledger_db, utc_ago(-7200)) == 1
    assert outbox.unpack(ledger_db.rows(tables.outbox)[0].items) == (Item(TASK, overdue, 0),)


def test_a_lane_with_a_long_backlog_hides_nothing_that_another_lost(
    ledger_db: LedgerDatabase,
) -> None:
    """The bulk lane's oldest unread record is a day old; `tasks` is read to its end."""
    lost, waits, fresh = ledger_db.load("lost", "waits", "fresh")
    in_bulk(ledger_db, waits)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60, lost, waits)

    assert swept(ledger_db, utc_ago(86_400)) == 0
    assert walked(ledger_db) == (1, None)
    assert walked(ledger_db) == (0, None)

    (order,) = ledger_db.rows(tables.outbox)
    assert (order.destination, outbox.unpack(order.items)) == (
        "tasks",
        (Item(TASK, lost, 0),),
    )
    assert -60 < ledger_db.due_in_s(lost) <= 0
    assert {ledger_db.status(task_id) for task_id in (waits, fresh)} == {Status.PENDING}


def test_a_task_is_compared_with_the_topic_of_its_newest_record(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that waits for its second attempt is in its tier, and not in a lane."""
    lost, unread, called_up = ledger_db.load("lost", "unread", "called up")
    for task_id in (lost, unread):
        retrying(ledger_db, task_id)
    tier = ledger_db.task(lost).carrier
    in_bulk(ledger_db, called_up)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)

    retries: dict[str, Any] = {tier: utc_ago(SLACK_S + 30), "other": utc_ago(86_400)}
    assert walked(ledger_db, status=Status.RETRYING, **retries) == (0, None)
    retries[tier] = None
    assert walked(ledger_db, status=Status.RETRYING, **retries) == (2, None)


def test_a_walk_goes_on_where_it_stopped(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step looks at a bounded number of tasks, also if many wait since the same time."""
    monkeypatch.setattr(sweeping, "STEP", 4)
    ids = ledger_db.load(*(f"task {number}" for number in range(10)))
    in_bulk(ledger_db, *ids[:9])
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)

    found, place, steps = 0, None, 0
    while steps == 0 or place is not None:
        count, place = walked(ledger_db, place)
        found, steps = found + count, steps + 1

    assert (found, steps) == (1, 3)


def test_a_walk_takes_a_page_at_a_time(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step whose tasks are all lost takes several transactions."""
    monkeypatch.setattr(sweeping, "PAGE", 3)
    ledger_db.load(*(f"task {number}" for number in range(7)))
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)

    place, counts = None, []
    for _ in range(3):
        count, place = walked(ledger_db, place)
        counts.append(count)

    assert (counts, place) == ([3, 3, 1], None)


def test_a_walk_leaves_tasks_alone_whose_order_may_wait(ledger_db: LedgerDatabase) -> None:
    """The tasks of an old order look as if they had no record; other carriers are walked."""
    urgent, other = ledger_db.load("urgent", "other")
    ledger_db.set(tables.task, urgent, lane=int(Lane.URGENT), carrier=Lane.URGENT.destination)
    items = [Item(TASK, other, 0)]
    (order,) = ledger_db.call(outbox.place, GROUP, "tasks", items)
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)
    ledger_db.ago(tables.outbox.c.due_at, SLACK_S + 30, order.id)

    assert walked(ledger_db) == (1, None)
    assert ledger_db.rows(tables.outbox)[-1].destination == "tasks.urgent"


def test_nothing_is_walked_where_all_topics_are_read_as_far(ledger_db: LedgerDatabase) -> None:
    """If all topics are read as far, the sweep by status finds all that is lost, and costs less."""
    ledger_db.load("a")
    ledger_db.ago(tables.task.c.due_at, SLACK_S + 60)
    same = utc_ago(30)

    for time in (same, None):
        times = dict.fromkeys(("tasks.urgent", "tasks", "tasks.bulk"), time)
        assert walked(ledger_db, None, **times) == (0, None)
