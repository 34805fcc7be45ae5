"""A cancel ends waiting tasks, leaves running tasks, and races with nobody."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from docllm.agent.ledger import open_work
from docllm.agent.ports import ClaimAnswer
from docllm.producer.ledger import cancel
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RELEASED,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
)


def cancel_all(ledger_db: LedgerDatabase, name: str = BATCH) -> list[int]:
    """Cancel page by page; return how many tasks each page cancelled."""
    batch_id = ledger_db.batch(name).id
    counts, more_wait = [], True
    while more_wait:
        count, more_wait = ledger_db.call(cancel.cancel_page, batch_id)
        counts.append(count)
    return counts


def one_by_key(
    ledger_db: LedgerDatabase, key: bytes, batch_id: int | None = None
) -> list[tuple[str, Status]]:
    return ledger_db.call(
        cancel.cancel_one, key=key, group=GROUP, batch_id=batch_id, actor="somebody"
    )


def test_waiting_tasks_are_cancelled_and_others_stay(ledger_db: LedgerDatabase) -> None:
    """Pending and retrying tasks end; running and final tasks keep their state."""
    pending, retrying, running, succeeded, dead = ledger_db.load(
        "pending", "retrying", "running", "succeeded", "dead"
    )
    lease = ledger_db.agent()
    owner = lease.next_owner()
    for task_id, outcome in ((retrying, RETRY), (succeeded, SUCCEEDED), (dead, DEAD)):
        ledger_db.settle(ledger_db.claimed(task_id, owner), owner, outcome)
    ledger_db.claimed(running, owner)
    ledger_db.cancel()

    assert cancel_all(ledger_db) == [2]

    assert [ledger_db.status(task_id) for task_id in (pending, retrying)] == [Status.CANCELLED] * 2
    assert ledger_db.status(running) is Status.PROCESSING
    assert (ledger_db.status(succeeded), ledger_db.status(dead)) == (Status.SUCCEEDED, Status.DEAD)
    assert ledger_db.claim(pending, lease.next_owner()) is ClaimAnswer.DONE
    assert {
        (row.route, row.outcome, row.delta)
        for row in ledger_db.rows(tables.tally)
        if row.state == Status.CANCELLED
    } == {("", "cancelled", 1), ("route", "cancelled", 1)}


def test_every_page_is_visited_once(ledger_db: LedgerDatabase) -> None:
    """All tasks beyond one page are cancelled, whatever their keys; other batches are not."""
    ids = ledger_db.load(*(f"Key {number} ä" for number in range(1100)))
    (other,) = ledger_db.load("a", into="other")
    ledger_db.cancel()

    assert cancel_all(ledger_db) == [500, 500, 100]
    assert {ledger_db.status(task_id) for task_id in ids[::100]} == {Status.CANCELLED}
    assert ledger_db.status(other) is Status.PENDING
    assert cancel_all(ledger_db) == [0]


def test_a_cancel_is_marked_once(ledger_db: LedgerDatabase) -> None:
    """The first call marks the batch and writes the audit row; the second returns False."""
    which = ledger_db.batch()

    assert ledger_db.call(cancel.cancel_batch, which, "ann")
    assert not ledger_db.call(cancel.cancel_batch, which, "bob")

    (entry,) = ledger_db.rows(tables.audit)
    assert (entry.actor, entry.action, entry.detail) == ("ann", "cancel", f"batch {BATCH}")


def test_a_task_that_comes_back_later_is_found_by_the_next_round(ledger_db: LedgerDatabase) -> None:
    """A task that waits again after the cancel passed is cancelled by the next round."""
    first, _ = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    ledger_db.claimed(first, owner)
    ledger_db.cancel()
    assert cancel_all(ledger_db) == [1]
    ledger_db.set(tables.task, first, status=int(Status.PENDING), owner=0)

    assert cancel_all(ledger_db) == [1]


def test_one_task_is_cancelled_by_its_key(ledger_db: LedgerDatabase) -> None:
    """The task belongs to the named batch, or to the only batch with this key.

    The answer has the batch and the task's former state.
    """
    (here,), (elsewhere,), (alone,) = (
        ledger_db.load("a"),
        ledger_db.load("a", into="other"),
        ledger_db.load("b"),
    )

    assert one_by_key(ledger_db, b"a", ledger_db.batch().id) == [(BATCH, Status.PENDING)]
    assert (ledger_db.status(here), ledger_db.status(elsewhere)) == (
        Status.CANCELLED,
        Status.PENDING,
    )
    assert one_by_key(ledger_db, b"b") == [(BATCH, Status.PENDING)]
    assert ledger_db.status(alone) is Status.CANCELLED
    assert one_by_key(ledger_db, b"A") == []
    assert ledger_db.count(tables.audit) == 2


def test_a_key_of_several_batches_cancels_nothing(ledger_db: LedgerDatabase) -> None:
    """Nobody can know which task is meant; the answer names the batches."""
    (here,), (elsewhere,) = ledger_db.load("a"), ledger_db.load("a", into="other")

    assert one_by_key(ledger_db, b"a") == [(BATCH, Status.PENDING), ("other", Status.PENDING)]
    assert (ledger_db.status(here), ledger_db.status(elsewhere)) == (Status.PENDING, Status.PENDING)
    assert ledger_db.count(tables.audit) == 0


def test_a_task_of_another_group_is_not_cancelled_by_its_key(ledger_db: LedgerDatabase) -> None:
    """Groups may share a ledger, and use the same ids."""
    (task_id,) = ledger_db.load("a", into="theirs", group="another")

    assert one_by_key(ledger_db, b"a") == []
    assert ledger_db.status(task_id) is Status.PENDING


def test_a_batch_is_open_until_its_last_task_is_final(ledger_db: LedgerDatabase) -> None:
    """A cancel continues as long as a task of the batch is open."""
    first, second = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    claimed = ledger_db.claimed(first, owner)
    batch_id = ledger_db.batch().id
    ledger_db.cancel()

    cancel_all(ledger_db)
    assert (ledger_db.status(second), ledger_db.call(open_work.open_in, batch_id)) == (
        Status.CANCELLED,
        True,
    )
    ledger_db.settle(claimed, owner, SUCCEEDED)

    assert not ledger_db.call(open_work.open_in, batch_id)


def test_a_running_task_is_not_cancelled_by_its_key(ledger_db: LedgerDatabase) -> None:
    """A running task finishes; the answer says that it runs, and nothing is counted."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    ledger_db.claimed(task_id, owner)

    assert one_by_key(ledger_db, b"a") == [(BATCH, Status.PROCESSING)]
    assert ledger_db.status(task_id) is Status.PROCESSING
    assert ledger_db.count(tables.audit) == 0


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_task_that_is_claimed_between_reading_and_locking_is_left(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is read without locks.

    A task that an agent claims meanwhile runs on, and is not counted as cancelled.
    """
    first, second = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    ledger_db.cancel()
    lock = cancel.cancel_waiting

    def claimed_meanwhile(*rest: Any) -> int:
        assert ledger_db.claim(first, owner) is ClaimAnswer.CLAIMED
        return lock(*rest)

    monkeypatch.setattr(cancel, "cancel_waiting", claimed_meanwhile)

    assert cancel_all(ledger_db) == [1]
    assert (ledger_db.status(first), ledger_db.status(second)) == (
        Status.PROCESSING,
        Status.CANCELLED,
    )
    assert ledger_db.rows(tables.tally)[-1].delta == 1


def test_a_task_cancelled_alone_is_not_brought_back(ledger_db: LedgerDatabase) -> None:
    """The rest of the task's batch goes on; the task's own record is finished."""
    first, other = ledger_db.load("a", "b")
    one_by_key(ledger_db, b"a")
    lease = ledger_db.agent()

    assert ledger_db.claim(first, lease.next_owner()) is ClaimAnswer.DONE
    assert ledger_db.claim(other, lease.next_owner()) is ClaimAnswer.CLAIMED


@pytest.mark.parametrize("rounds", [3])
def test_claims_and_a_cancel_side_by_side_lose_and_double_nothing(
    ledger_db: LedgerDatabase, rounds: int
) -> None:
    """Each task ends cancelled or claimed, never both, and is counted once."""
    ids = ledger_db.load(*(f"task {number:04}" for number in range(600)))
    lease = ledger_db.agent()
    ledger_db.cancel()

    def claim(part: list[int]) -> int:
        owner = lease.next_owner()
        answers = ledger_db.answers([ledger_db.record(task_id) for task_id in part], owner)
        taken = [
            row
            for answer, row in answers.values()
            if answer is ClaimAnswer.CLAIMED and row is not None
        ]
        for row in taken[::2]:
            ledger_db.settle(row, owner, RELEASED)
        return len(taken)

    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(claim, ids[start : start + 50]) for start in range(0, 600, 100)]
        cancels = [pool.submit(cancel_all, ledger_db) for _ in range(rounds)]
        taken = sum(claiming.result() for claiming in claims)
        for cancel in cancels:
            cancel.result()
    cancel_all(ledger_db)

    states = [ledger_db.status(task_id) for task_id in ids]
    running = states.count(Status.PROCESSING)
    assert set(states) <= {Status.PROCESSING, Status.CANCELLED}
    assert running <= taken
    assert (
        sum(row.delta for row in ledger_db.rows(tables.tally) if row.state == Status.CANCELLED)
        == 600 - running
    )
