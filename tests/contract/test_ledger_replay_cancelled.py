"""A replay of cancelled tasks reopens their batches."""

from agent.outcome import Cancelled
from agent.ports import Verdict
from producer.ledger import cancel
from producer.replay import tasks
from producer.replay.runs import ItemState, Run
from schemas.ledger import tables
from schemas.task.states import Status
from tests.contract.ledger_dead import applied, counts, dead, replayed, stored, wish
from tests.contract.ledger_parts import GROUP, Books


def cancelled(books: Books, *keys: str) -> list[int]:
    """Load tasks and cancel their batch."""
    ids = books.load(*keys)
    books.cancel()
    batch_id = books.batch().id
    books.run(lambda c: cancel.cancel_page(c, batch_id, b""))
    return ids


def asked(books: Books) -> Run:
    """Store a replay of cancelled tasks, as if it were requested between the cancel and now."""
    run = stored(books, wish(cancelled=True))
    assert run is not None
    books.ago(tables.batch.c.cancelled_at, 20)
    books.ago(tables.replay_run.c.created_at, 10)
    return run


def test_cancelled_tasks_come_back(books: Books) -> None:
    """The tasks are pending with a new fence, and their batch is open and takes tasks.

    The audit says who reopened it.
    """
    one, two = cancelled(books, "a", "b")

    found = replayed(books, cancelled=True)

    assert found.counts == {ItemState.REPLAYED: 2}
    assert [
        (books.task(each).status, books.task(each).fence, books.task(each).replays)
        for each in (one, two)
    ] == [(0, 1, 1)] * 2
    assert not books.batch().cancelled
    assert books.load("c")
    assert counts(books) == {"total": 3, "pending": 3}
    assert [(row.action, row.actor) for row in books.rows(tables.audit)] == [
        ("cancel", "somebody"),
        ("replay", "ann"),
        ("reopen", "ann"),
    ]


def test_what_came_back_is_not_cancelled_again(books: Books) -> None:
    """A cancel that continues behind the replay leaves the batch alone.

    A claim finds the batch open.
    """
    (one,) = cancelled(books, "a")
    batch_id = books.batch().id
    replayed(books, cancelled=True)

    assert books.run(lambda c: cancel.cancel_page(c, batch_id, b"")) == (0, None)

    row = books.claimed(one, books.agent().next_owner(), fence=1)
    assert not row.cancelled


def test_a_cancel_that_comes_later_than_a_replay_wins(books: Books) -> None:
    """The half-finished run goes on: the tasks it replayed are cancelled again.

    The other tasks stay as they are.
    """
    one, two = cancelled(books, "a", "b")
    batch_id = books.batch().id
    run = asked(books)
    first = books.run(lambda c: tasks.apply(c, GROUP, run.id, run.wish, 0, 1))
    assert first is not None
    assert books.status(one) is Status.PENDING

    books.cancel()
    books.run(lambda c: cancel.cancel_page(c, batch_id, b""))

    assert applied(books, run).counts == {ItemState.REPLAYED: 1, ItemState.PASSED: 1}
    assert books.batch().cancelled
    assert [books.status(each) for each in (one, two)] == [Status.CANCELLED] * 2


def test_a_run_that_replays_nothing_opens_nothing(books: Books) -> None:
    """The run's tasks were replayed by another run, or are at the cap.

    A batch is reopened only for tasks that come back.
    """
    (one,) = cancelled(books, "a")
    run = asked(books)
    books.set(tables.task, one, fence=1)

    assert applied(books, run).counts == {ItemState.PASSED: 1}

    assert books.batch().cancelled
    assert "reopen" not in [row.action for row in books.rows(tables.audit)]


def test_a_claim_that_saw_the_cancel_is_given_back_once_its_batch_is_open(books: Books) -> None:
    """The task was running, so no replay has taken it.

    If it were cancelled now, it would stay behind in a batch that goes on.
    """
    running, waiting = books.load("running", "waiting")
    books.cancel()
    owner = books.agent().next_owner()
    row = books.claimed(running, owner)
    batch_id = books.batch().id
    books.run(lambda c: cancel.cancel_page(c, batch_id, b""))
    replayed(books, cancelled=True)

    assert row.cancelled
    assert books.settle(row, owner, Cancelled()) is Verdict.REOPENED

    assert (books.status(running), books.status(waiting)) == (Status.PENDING, Status.PENDING)
    assert books.due_in_s(running) <= 0
    assert counts(books) == {"total": 2, "pending": 2}
    assert not books.claimed(running, owner + 1).cancelled


def test_a_claim_that_saw_the_cancel_is_cancelled_while_the_batch_is(books: Books) -> None:
    """Nobody has reopened it."""
    (one,) = books.load("a")
    books.cancel()
    owner = books.agent().next_owner()

    assert books.settle(books.claimed(one, owner), owner, Cancelled()) is Verdict.SETTLED

    assert books.status(one) is Status.CANCELLED


def test_one_task_that_was_cancelled_alone(books: Books) -> None:
    """The task's batch was never cancelled, so nothing is reopened."""
    one, two = books.load("a", "b")
    books.run(lambda c: cancel.cancel_one(c, b"a", GROUP, None, "somebody"))
    books.run(lambda c: cancel.cancel_one(c, b"b", GROUP, None, "somebody"))

    replayed(books, cancelled=True, key="a")

    assert (books.status(one), books.status(two)) == (Status.PENDING, Status.CANCELLED)
    assert "reopen" not in [row.action for row in books.rows(tables.audit)]


def test_a_dead_task_of_a_cancelled_batch_stays(books: Books) -> None:
    """The replayed task would be cancelled at once.

    A cancel after the storing of the run is noticed too.
    """
    (one,) = dead(books, "a")
    run = stored(books, wish())
    books.cancel()

    assert stored(books, wish()) is None
    assert applied(books, run).counts == {ItemState.PASSED: 1}
    assert books.status(one) is Status.DEAD


def test_cancelled_and_dead_are_not_mixed(books: Books) -> None:
    """Each selection takes only tasks in its own state."""
    (one,) = dead(books, "a")
    (two,) = books.load("b")
    books.run(lambda c: cancel.cancel_one(c, b"b", GROUP, None, "somebody"))

    replayed(books)
    assert (books.status(one), books.status(two)) == (Status.PENDING, Status.CANCELLED)

    owner = books.agent().next_owner()
    books.cancel()
    books.settle(books.claimed(one, owner, fence=1), owner, Cancelled())
    killed_alone = replayed(books, cancelled=True, key="b")
    assert killed_alone.counts == {ItemState.REPLAYED: 1}
    assert (books.status(one), books.status(two)) == (Status.CANCELLED, Status.PENDING)
