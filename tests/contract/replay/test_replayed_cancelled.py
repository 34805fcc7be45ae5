"""A replay of cancelled tasks reopens their batches."""

from docllm.agent.ports import Verdict
from docllm.agent.ports.outcome import Cancelled
from docllm.producer.ledger import cancel
from docllm.producer.ledger.replay_progress import ItemState, ReplayRun
from docllm.producer.replay import tasks
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import Status
from tests.contract.support.ledger_dead import applied, counts, dead, replayed, request, stored
from tests.support.ledger_database import GROUP, LedgerDatabase


def cancelled(ledger_db: LedgerDatabase, *keys: str) -> list[int]:
    """Load tasks and cancel their batch."""
    ids = ledger_db.load(*keys)
    ledger_db.cancel()
    batch_id = ledger_db.batch().id
    ledger_db.call(cancel.cancel_page, batch_id)
    return ids


def asked(ledger_db: LedgerDatabase) -> ReplayRun:
    """Store a replay of cancelled tasks, as if it were requested between the cancel and now."""
    run = stored(ledger_db, request(cancelled=True))
    assert run is not None
    ledger_db.ago(tables.batch.c.cancelled_at, 20)
    ledger_db.ago(tables.replay_run.c.created_at, 10)
    return run


def test_cancelled_tasks_come_back(ledger_db: LedgerDatabase) -> None:
    """The tasks are pending with a new fence, and their batch is open and takes tasks.

    The audit says who reopened it.
    """
    first, second = cancelled(ledger_db, "a", "b")

    page = replayed(ledger_db, cancelled=True)

    assert page.counts == {ItemState.REPLAYED: 2}
    assert [
        (ledger_db.task(each).status, ledger_db.task(each).fence, ledger_db.task(each).replays)
        for each in (first, second)
    ] == [(0, 1, 1)] * 2
    assert not ledger_db.batch().cancelled
    assert ledger_db.load("c")
    assert counts(ledger_db) == {"total": 3, "pending": 3}
    assert [(row.action, row.actor) for row in ledger_db.rows(tables.audit)] == [
        ("cancel", "somebody"),
        ("replay", "ann"),
        ("reopen", "ann"),
    ]


def test_a_replayed_task_is_not_cancelled_again(ledger_db: LedgerDatabase) -> None:
    """A cancel that continues behind the replay leaves the batch alone.

    A claim finds the batch open.
    """
    (task_id,) = cancelled(ledger_db, "a")
    batch_id = ledger_db.batch().id
    replayed(ledger_db, cancelled=True)

    assert ledger_db.call(cancel.cancel_page, batch_id) == (0, False)

    row = ledger_db.claimed(task_id, ledger_db.agent().next_owner(), fence=1)
    assert not row.cancelled


def test_a_cancel_that_comes_later_than_a_replay_wins(ledger_db: LedgerDatabase) -> None:
    """The half-finished run goes on: the tasks it replayed are cancelled again.

    The other tasks stay as they are.
    """
    cancelled_id, second = cancelled(ledger_db, "a", "b")
    batch_id = ledger_db.batch().id
    run = asked(ledger_db)
    first = ledger_db.call(
        tasks.apply, group=GROUP, run_id=run.id, request=run.request, after=0, limit=1
    )
    assert first is not None
    assert ledger_db.status(cancelled_id) is Status.PENDING

    ledger_db.cancel()
    ledger_db.call(cancel.cancel_page, batch_id)

    assert applied(ledger_db, run).counts == {ItemState.REPLAYED: 1, ItemState.SKIPPED: 1}
    assert ledger_db.batch().cancelled
    assert [ledger_db.status(each) for each in (cancelled_id, second)] == [Status.CANCELLED] * 2


def test_a_run_that_replays_nothing_opens_nothing(ledger_db: LedgerDatabase) -> None:
    """The run's tasks were replayed by another run, or are at the cap.

    A batch is reopened only for tasks that come back.
    """
    (task_id,) = cancelled(ledger_db, "a")
    run = asked(ledger_db)
    ledger_db.set(tables.task, task_id, fence=1)

    assert applied(ledger_db, run).counts == {ItemState.SKIPPED: 1}

    assert ledger_db.batch().cancelled
    assert "reopen" not in [row.action for row in ledger_db.rows(tables.audit)]


def test_a_claim_that_saw_the_cancel_is_released_once_its_batch_reopens(
    ledger_db: LedgerDatabase,
) -> None:
    """The task was running, so no replay has taken it.

    If it were cancelled now, it would stay behind in a batch that goes on.
    """
    running, waiting = ledger_db.load("running", "waiting")
    ledger_db.cancel()
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(running, owner)
    batch_id = ledger_db.batch().id
    ledger_db.call(cancel.cancel_page, batch_id)
    replayed(ledger_db, cancelled=True)

    assert row.cancelled
    assert ledger_db.settle(row, owner, Cancelled()) is Verdict.REOPENED

    assert (ledger_db.status(running), ledger_db.status(waiting)) == (
        Status.PENDING,
        Status.PENDING,
    )
    assert ledger_db.due_in_s(running) <= 0
    assert counts(ledger_db) == {"total": 2, "pending": 2}
    assert not ledger_db.claimed(running, owner + 1).cancelled


def test_a_claim_that_saw_the_cancel_is_cancelled_while_the_batch_is(
    ledger_db: LedgerDatabase,
) -> None:
    """Nobody has reopened it."""
    (task_id,) = ledger_db.load("a")
    ledger_db.cancel()
    owner = ledger_db.agent().next_owner()

    assert (
        ledger_db.settle(ledger_db.claimed(task_id, owner), owner, Cancelled()) is Verdict.SETTLED
    )

    assert ledger_db.status(task_id) is Status.CANCELLED


def test_one_task_that_was_cancelled_alone(ledger_db: LedgerDatabase) -> None:
    """The task's batch was never cancelled, so nothing is reopened."""
    first, second = ledger_db.load("a", "b")
    ledger_db.call(cancel.cancel_one, key=b"a", group=GROUP, batch_id=None, actor="somebody")
    ledger_db.call(cancel.cancel_one, key=b"b", group=GROUP, batch_id=None, actor="somebody")

    replayed(ledger_db, cancelled=True, key="a")

    assert (ledger_db.status(first), ledger_db.status(second)) == (Status.PENDING, Status.CANCELLED)
    assert "reopen" not in [row.action for row in ledger_db.rows(tables.audit)]


def test_a_dead_task_of_a_cancelled_batch_stays(ledger_db: LedgerDatabase) -> None:
    """The replayed task would be cancelled at once.

    A cancel after the storing of the run is noticed too.
    """
    (task_id,) = dead(ledger_db, "a")
    run = stored(ledger_db, request())
    ledger_db.cancel()

    assert stored(ledger_db, request()) is None
    assert applied(ledger_db, run).counts == {ItemState.SKIPPED: 1}
    assert ledger_db.status(task_id) is Status.DEAD


def test_cancelled_and_dead_are_not_mixed(ledger_db: LedgerDatabase) -> None:
    """Each selection takes only tasks in its own state."""
    (task_id,) = dead(ledger_db, "a")
    (second,) = ledger_db.load("b")
    ledger_db.call(cancel.cancel_one, key=b"b", group=GROUP, batch_id=None, actor="somebody")

    replayed(ledger_db)
    assert (ledger_db.status(task_id), ledger_db.status(second)) == (
        Status.PENDING,
        Status.CANCELLED,
    )

    owner = ledger_db.agent().next_owner()
    ledger_db.cancel()
    ledger_db.settle(ledger_db.claimed(task_id, owner, fence=1), owner, Cancelled())
    killed_alone = replayed(ledger_db, cancelled=True, key="b")
    assert killed_alone.counts == {ItemState.REPLAYED: 1}
    assert (ledger_db.status(task_id), ledger_db.status(second)) == (
        Status.CANCELLED,
        Status.PENDING,
    )
