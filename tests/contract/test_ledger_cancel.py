"""A cancel ends waiting tasks, leaves running tasks, and races with nobody."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent.ledger import queries
from agent.ports import Answer
from producer.ledger import cancel
from schemas.ledger import tables
from schemas.task.states import Status
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, RELEASED, RETRY, SUCCEEDED, Books


def cancel_all(books: Books, name: str = BATCH) -> list[int]:
    """Cancel page by page; return how many tasks each page cancelled."""
    batch_id = books.batch(name).id
    counts, after = [], b""
    while after is not None:
        count, after = books.run(lambda c, after=after: cancel.cancel_page(c, batch_id, after))
        counts.append(count)
    return counts


def one_by_key(books: Books, key: bytes, batch_id: int | None = None) -> list[tuple[str, Status]]:
    return books.run(lambda c: cancel.cancel_one(c, key, GROUP, batch_id, "somebody"))


def test_what_waits_is_cancelled_and_what_ran_or_runs_is_left(books: Books) -> None:
    """Pending and retrying tasks end; running and final tasks keep their state."""
    pending, retrying, running, succeeded, dead = books.load(
        "pending", "retrying", "running", "succeeded", "dead"
    )
    lease = books.agent()
    owner = lease.next_owner()
    for one, outcome in ((retrying, RETRY), (succeeded, SUCCEEDED), (dead, DEAD)):
        books.settle(books.claimed(one, owner), owner, outcome)
    books.claimed(running, owner)
    books.cancel()

    assert cancel_all(books) == [2]

    assert [books.status(one) for one in (pending, retrying)] == [Status.CANCELLED] * 2
    assert books.status(running) is Status.PROCESSING
    assert (books.status(succeeded), books.status(dead)) == (Status.SUCCEEDED, Status.DEAD)
    assert books.claim(pending, lease.next_owner()) is Answer.DONE
    assert [(row.state, row.outcome, row.delta) for row in books.rows(tables.tally)][-1] == (
        Status.CANCELLED,
        "cancelled",
        2,
    )


def test_every_page_is_visited_once(books: Books) -> None:
    """All tasks beyond one page are cancelled, whatever their keys; other batches are not."""
    ids = books.load(*(f"Key {number} ä" for number in range(1100)))
    (other,) = books.load("a", into="other")
    books.cancel()

    assert cancel_all(books) == [500, 500, 100]
    assert {books.status(one) for one in ids[::100]} == {Status.CANCELLED}
    assert books.status(other) is Status.PENDING
    assert cancel_all(books) == [0, 0, 0]


def test_a_cancel_is_marked_once(books: Books) -> None:
    """The first call marks the batch and writes the audit row; the second returns False."""
    which = books.batch()

    assert books.run(lambda c: cancel.mark(c, which, "ann"))
    assert not books.run(lambda c: cancel.mark(c, which, "bob"))

    (entry,) = books.rows(tables.audit)
    assert (entry.actor, entry.action, entry.detail) == ("ann", "cancel", f"batch {BATCH}")


def test_a_task_that_comes_back_later_is_found_by_the_next_round(books: Books) -> None:
    """A task that waits again after the cancel passed is cancelled by the next round."""
    one, _ = books.load("a", "b")
    owner = books.agent().next_owner()
    books.claimed(one, owner)
    books.cancel()
    assert cancel_all(books) == [1]
    books.set(tables.task, one, status=int(Status.PENDING), owner=0)

    assert cancel_all(books) == [1]


def test_one_task_is_cancelled_by_its_key(books: Books) -> None:
    """The task belongs to the named batch, or to the only batch with this key.

    The answer has the batch and the task's former state.
    """
    (here,), (there,), (alone,) = books.load("a"), books.load("a", into="other"), books.load("b")

    assert one_by_key(books, b"a", books.batch().id) == [(BATCH, Status.PENDING)]
    assert (books.status(here), books.status(there)) == (Status.CANCELLED, Status.PENDING)
    assert one_by_key(books, b"b") == [(BATCH, Status.PENDING)]
    assert books.status(alone) is Status.CANCELLED
    assert one_by_key(books, b"A") == []
    assert books.count(tables.audit) == 2


def test_a_key_of_several_batches_cancels_nothing(books: Books) -> None:
    """Nobody can know which task is meant; the answer names the batches."""
    (here,), (there,) = books.load("a"), books.load("a", into="other")

    assert one_by_key(books, b"a") == [(BATCH, Status.PENDING), ("other", Status.PENDING)]
    assert (books.status(here), books.status(there)) == (Status.PENDING, Status.PENDING)
    assert books.count(tables.audit) == 0


def test_a_task_of_another_group_is_not_cancelled_by_its_key(books: Books) -> None:
    """Groups may share a ledger, and use the same ids."""
    (one,) = books.load("a", into="theirs", group="another")

    assert one_by_key(books, b"a") == []
    assert books.status(one) is Status.PENDING


def test_a_batch_is_open_until_its_last_task_is_final(books: Books) -> None:
    """A cancel continues as long as a task of the batch is open."""
    one, two = books.load("a", "b")
    owner = books.agent().next_owner()
    claimed = books.claimed(one, owner)
    batch_id = books.batch().id
    books.cancel()

    cancel_all(books)
    assert (books.status(two), books.run(lambda c: queries.open_in(c, batch_id))) == (
        Status.CANCELLED,
        True,
    )
    books.settle(claimed, owner, SUCCEEDED)

    assert not books.run(lambda c: queries.open_in(c, batch_id))


def test_a_running_task_is_not_cancelled_by_its_key(books: Books) -> None:
    """A running task finishes; the answer says that it runs, and nothing is counted."""
    (one,) = books.load("a")
    owner = books.agent().next_owner()
    books.claimed(one, owner)

    assert one_by_key(books, b"a") == [(BATCH, Status.PROCESSING)]
    assert books.status(one) is Status.PROCESSING
    assert books.count(tables.audit) == 0


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_task_that_is_claimed_between_reading_and_locking_is_left(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is read without locks.

    A task that an agent claims meanwhile runs on, and is not counted as cancelled.
    """
    one, two = books.load("a", "b")
    owner = books.agent().next_owner()
    books.cancel()
    lock = cancel._cancel

    def claimed_meanwhile(*rest: Any) -> int:
        assert books.claim(one, owner) is Answer.CLAIMED
        return lock(*rest)

    monkeypatch.setattr(cancel, "_cancel", claimed_meanwhile)

    assert cancel_all(books) == [1]
    assert (books.status(one), books.status(two)) == (Status.PROCESSING, Status.CANCELLED)
    assert books.rows(tables.tally)[-1].delta == 1


def test_a_task_cancelled_alone_is_not_brought_back(books: Books) -> None:
    """The rest of the task's batch goes on; the task's own record is finished."""
    one, other = books.load("a", "b")
    one_by_key(books, b"a")
    lease = books.agent()

    assert books.claim(one, lease.next_owner()) is Answer.DONE
    assert books.claim(other, lease.next_owner()) is Answer.CLAIMED


@pytest.mark.parametrize("rounds", [3])
def test_claims_and_a_cancel_side_by_side_lose_and_double_nothing(
    books: Books, rounds: int
) -> None:
    """Each task ends cancelled or claimed, never both, and is counted once."""
    ids = books.load(*(f"task {number:04}" for number in range(600)))
    lease = books.agent()
    books.cancel()

    def claim(part: list[int]) -> int:
        owner = lease.next_owner()
        answers = books.answers([books.record(one) for one in part], owner)
        taken = [
            row for said, row in answers.values() if said is Answer.CLAIMED and row is not None
        ]
        for row in taken[::2]:
            books.settle(row, owner, RELEASED)
        return len(taken)

    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(claim, ids[start : start + 50]) for start in range(0, 600, 100)]
        cancels = [pool.submit(cancel_all, books) for _ in range(rounds)]
        taken = sum(one.result() for one in claims)
        for one in cancels:
            one.result()
    cancel_all(books)

    states = [books.status(one) for one in ids]
    running = states.count(Status.PROCESSING)
    assert set(states) <= {Status.PROCESSING, Status.CANCELLED}
    assert running <= taken
    assert (
        sum(row.delta for row in books.rows(tables.tally) if row.state == Status.CANCELLED)
        == 600 - running
    )
