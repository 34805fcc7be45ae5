"""A claim answers for every record, takes free tasks, and may be repeated with its token."""

import pytest

from agent.ledger import claims
from agent.ports import Answer
from schemas.ledger.tables import batch, outbox, task
from schemas.task.envelope import digest
from schemas.task.states import Status
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, RELEASED, RETRY, SUCCEEDED, Books


def test_a_free_task_is_claimed(books: Books) -> None:
    """A due task without an owner becomes the caller's, until the requested deadline."""
    (one,) = books.load("a")
    owner = books.agent().next_owner()

    said, row = books.answers([books.record(one)], owner, 600.0)[one]

    assert said is Answer.CLAIMED
    assert row is not None
    assert (row.owner, row.fence, row.attempt, row.task_key, row.batch) == (
        owner,
        0,
        0,
        b"a",
        BATCH,
    )
    assert row.due_in_s == pytest.approx(600, abs=30)


def test_a_question_takes_nothing(books: Books) -> None:
    """The question without locks answers "claimable" and leaves the task as it is."""
    (one,) = books.load("a")

    assert books.ask(one) is Answer.CLAIMABLE
    assert books.status(one) is Status.PENDING


def test_another_owner_is_told_that_the_task_is_held(books: Books) -> None:
    """A task under a live claim is held for all others, in a claim and in a question."""
    (one,) = books.load("a")
    lease = books.agent()
    first = lease.next_owner()
    books.claimed(one, first)

    assert books.claim(one, lease.next_owner()) is Answer.HELD
    assert books.ask(one) is Answer.HELD
    assert books.task(one).owner == first


def test_the_same_token_claims_again_after_a_lost_answer(books: Books) -> None:
    """A claim whose answer was lost is repeated under its own token, and under no other."""
    (one,) = books.load("a")
    lease = books.agent()
    token = lease.next_owner()
    books.answers([books.record(one)], token)

    assert books.claim(one, token) is Answer.CLAIMED
    assert books.claim(one, lease.next_owner()) is Answer.HELD


@pytest.mark.parametrize("outcome", [SUCCEEDED, DEAD])
def test_a_final_task_is_done(books: Books, outcome: object) -> None:
    """A record of a final task is finished."""
    (one,) = books.load("a")
    lease = books.agent()
    owner = lease.next_owner()
    books.settle(books.claimed(one, owner), owner, outcome)

    assert books.claim(one, lease.next_owner()) is Answer.DONE
    assert books.ask(one) is Answer.DONE


def test_an_older_record_is_stale(books: Books) -> None:
    """After a retry has ordered a newer record, the older one takes nothing.

    This holds for waiting and for running tasks.
    """
    (one,) = books.load("a")
    lease = books.agent()
    owner = lease.next_owner()
    books.settle(books.claimed(one, owner), owner, RETRY)
    books.ago(task.c.due_at, 1, one)

    assert books.claim(one, lease.next_owner(), fence=0) is Answer.STALE
    assert books.status(one) is Status.RETRYING
    assert books.claim(one, lease.next_owner(), fence=1) is Answer.CLAIMED
    assert books.ask(one, fence=0) is Answer.STALE


def test_a_task_that_is_not_due_is_early(books: Books) -> None:
    """The database's clock decides: before its due time a task is early.

    The answer says how long it will be.
    """
    (one,) = books.load("a")
    lease = books.agent()
    owner = lease.next_owner()
    books.settle(books.claimed(one, owner), owner, RETRY)

    said, row = books.answers([books.record(one, fence=1)], lease.next_owner())[one]

    assert said is Answer.EARLY
    assert row is not None
    assert 0 < row.due_in_s <= 31
    assert books.ask(one, fence=1) is Answer.EARLY


def test_a_task_that_came_back_between_the_statements_is_again(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must ask again if the task was busy for the update and free for the read."""
    (one,) = books.load("a")
    lease = books.agent()
    first, second = lease.next_owner(), lease.next_owner()
    books.claimed(one, first)
    read = claims._answers

    def released_meanwhile(connection: object, *rest: object) -> object:
        claims.release(connection, first, [one])
        return read(connection, *rest)

    monkeypatch.setattr(claims, "_answers", released_meanwhile)

    assert books.claim(one, second) is Answer.AGAIN


def test_a_record_with_another_content_is_a_conflict_and_takes_nothing(books: Books) -> None:
    """A record whose key or value is not the task's gives back at once what its claim took."""
    (one,) = books.load("a")
    lease = books.agent()
    forged = books.record(one, stamp=digest(b"a", b"other"))

    said = books.answers([forged], lease.next_owner())[one][0]

    assert said is Answer.CONFLICT
    assert (books.status(one), books.task(one).owner) == (Status.PENDING, 0)


def test_the_right_content_is_no_conflict(books: Books) -> None:
    """The digest of the loaded key and value is accepted."""
    (one,) = books.load("a")
    genuine = books.record(one, stamp=digest(b"a", b"value of a"))

    assert books.answers([genuine], books.agent().next_owner())[one][0] is Answer.CLAIMED


def test_a_fence_far_above_the_rows_is_a_conflict(books: Books) -> None:
    """A record may run ahead of a ledger that lost transactions, by at most a thousand."""
    one, two = books.load("a", "b")
    lease = books.agent()

    assert books.claim(one, lease.next_owner(), fence=1000) is Answer.CLAIMED
    assert books.claim(two, lease.next_owner(), fence=1001) is Answer.CONFLICT
    assert books.status(two) is Status.PENDING


def test_a_conflicting_record_leaves_a_running_claim_alone(books: Books) -> None:
    """A forged record of a running task does not end that task's claim."""
    (one,) = books.load("a")
    lease = books.agent()
    first = lease.next_owner()
    books.claimed(one, first)

    books.answers([books.record(one, stamp=bytes(16))], lease.next_owner())

    assert books.task(one).owner == first


def test_a_task_without_a_row_is_unknown_or_done(books: Books) -> None:
    """Without a row a record is unknown, or done if its batch was archived."""
    books.load("a")
    lease = books.agent()
    assert books.claim(999_999, lease.next_owner()) is Answer.UNKNOWN

    books.ago(batch.c.archived_at, 1)

    assert books.claim(999_999, lease.next_owner()) is Answer.DONE


def test_one_call_answers_for_records_of_every_kind(books: Books) -> None:
    """Each record is claimed by its own fence, and none stays without an answer."""
    free, moved, ended = books.load("free", "moved", "ended")
    lease = books.agent()
    owner = lease.next_owner()
    books.settle(books.claimed(moved, owner), owner, RETRY)
    books.settle(books.claimed(ended, owner), owner, SUCCEEDED)
    books.ago(task.c.due_at, 1, moved)
    records = [books.record(moved, 1), books.record(free), books.record(ended), books.record(77)]

    answers = books.answers(records, lease.next_owner())

    assert {key: said for key, (said, _) in answers.items()} == {
        free: Answer.CLAIMED,
        moved: Answer.CLAIMED,
        ended: Answer.DONE,
        77: Answer.UNKNOWN,
    }


def test_a_task_past_its_deadline_is_claimed_as_expired(books: Books) -> None:
    """The claim reports the passed deadline, so that the task is settled without a call."""
    one, two = books.load("a", "b")
    books.ago(task.c.expires_at, 1, one)
    owner = books.agent().next_owner()

    assert books.claimed(one, owner).expired
    assert not books.claimed(two, owner).expired


def test_a_release_gives_back_only_what_is_the_owners(books: Books) -> None:
    """A release counts and publishes nothing, and leaves others' claims and ended tasks."""
    mine, other, ended = books.load("mine", "other", "ended")
    lease = books.agent()
    owner, stranger = lease.next_owner(), lease.next_owner()
    books.claimed(mine, owner)
    books.claimed(other, stranger)
    books.settle(books.claimed(ended, owner), owner, SUCCEEDED)

    books.run(lambda c: claims.release(c, owner, [mine, other, ended]))

    assert (books.status(mine), books.task(mine).owner, books.task(mine).attempt) == (
        Status.PENDING,
        0,
        0,
    )
    assert (books.status(other), books.task(other).owner) == (Status.PROCESSING, stranger)
    assert books.status(ended) is Status.SUCCEEDED
    assert books.count(outbox) == 0
    assert books.claim(mine, lease.next_owner()) is Answer.CLAIMED


def test_a_settled_release_can_be_claimed_at_once(books: Books) -> None:
    """A release as an outcome returns the task with the same fence, due now, without an order."""
    (one,) = books.load("a")
    lease = books.agent()
    owner = lease.next_owner()

    books.settle(books.claimed(one, owner), owner, RELEASED)

    assert books.claim(one, lease.next_owner()) is Answer.CLAIMED
    assert books.count(outbox) == 0


def test_relief_orders_another_record_for_a_running_task_only(books: Books) -> None:
    """Under the claim an order with the same fence is written; without it nothing is."""
    (one,) = books.load("a")
    lease = books.agent()
    owner = lease.next_owner()
    books.claimed(one, owner)

    order = books.run(lambda c: claims.relieve(c, GROUP, books.record(one), 0, owner))
    refused = books.run(
        lambda c: claims.relieve(c, GROUP, books.record(one), 0, lease.next_owner())
    )

    assert order is not None
    assert (order.destination, order.items) == ("tasks", ((0, one, 0),))
    assert refused is None
    assert books.count(outbox) == 1


def test_relief_orders_another_record_for_a_task_that_waits_at_its_fence(books: Books) -> None:
    """The holder of a snoozed task's record may order its relief.

    A running task, or one that waits at another fence, gets no relief.
    """
    waiting, running = books.load("a", "b")
    books.claimed(running, books.agent().next_owner())

    orders = [
        books.run(
            lambda c, one=one, fence=fence: claims.relieve(c, GROUP, books.record(one), fence, None)
        )
        for one, fence in ((waiting, 0), (waiting, 1), (running, 0))
    ]

    assert [order.items if order else None for order in orders] == [((0, waiting, 0),), None, None]


def test_relief_compares_a_record_with_its_task(books: Books) -> None:
    """The ordered record has the task's value.

    A record that only names the task would be lost, whether the task waits or runs.
    """
    waiting, running = books.load("a", "b")
    owner = books.agent().next_owner()
    books.claimed(running, owner)

    def ordered(one: int, stamp: bytes, by: int | None) -> bool:
        return (
            books.run(lambda c: claims.relieve(c, GROUP, books.record(one, stamp=stamp), 0, by))
            is not None
        )

    assert [ordered(waiting, digest(b"a", value), None) for value in (b"other", b"value of a")] == [
        False,
        True,
    ]
    assert [
        ordered(running, digest(b"b", value), owner) for value in (b"other", b"value of b")
    ] == [False, True]


def test_a_claim_tells_of_a_cancelled_batch(books: Books) -> None:
    """A task claimed after its batch was cancelled is known as such, until the batch reopens."""
    one, two, three = books.load("a", "b", "c")
    lease = books.agent()

    before = books.claimed(one, lease.next_owner())
    books.cancel()
    between = books.claimed(two, lease.next_owner())
    books.set(batch, books.batch().id, cancelled_at=None)
    after = books.claimed(three, lease.next_owner())

    assert [row.cancelled for row in (before, between, after)] == [False, True, False]


def test_bodies_come_back_byte_for_byte(books: Books) -> None:
    """The ledger returns key and value of records kept without them; missing ids are left out."""
    one, _ = books.load("a", "b")

    assert books.run(lambda c: claims.bodies(c, [one, 4711])) == {one: (b"a", b"value of a")}


def test_the_longest_key_comes_back_whole(books: Books) -> None:
    """A key of 191 bytes is stored and read back byte for byte."""
    (one,) = books.load("ü" * 95 + "k")

    assert books.claimed(one, books.agent().next_owner()).task_key == ("ü" * 95 + "k").encode()
