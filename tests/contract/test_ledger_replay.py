"""A replay gives a dead or cancelled task a fresh start, once, whatever else happens to it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.ports import Answer, Verdict
from producer.ledger import cancel, outbox, status
from producer.ledger.outbox import unpack
from producer.replay import runs as replay_runs
from producer.replay import tasks
from producer.replay.runs import ItemState
from schemas.ledger import tables
from schemas.task.states import Status
from tests.contract.ledger_dead import (
    EXPIRED,
    applied,
    counts,
    dead,
    delivered,
    killed,
    replayed,
    stored,
    wish,
)
from tests.contract.ledger_parts import BATCH, DEAD, GROUP, RETRY, SUCCEEDED, TOO_LONG, Books


def test_a_replayed_task_starts_afresh(books: Books) -> None:
    """The task is pending and due at once, with a new fence and one more replay.

    No attempt and no loss is counted any more, and its dead letter is gone.
    """
    (one,) = books.load("a")
    killed(books, one, RETRY)
    books.ago(tables.task.c.due_at, 1, one)
    killed(books, one)
    delivered(books)
    books.set(tables.task, one, lease_losses=2)

    found = replayed(books, key="a")

    row = books.task(one)
    assert (row.status, row.fence, row.attempt, row.lease_losses, row.replays, row.owner) == (
        Status.PENDING,
        2,
        0,
        0,
        1,
        0,
    )
    assert books.due_in_s(one) <= 0
    assert books.count(tables.dead_letter) == 0
    assert found.items == [(outbox.TASK, one, 2)]
    assert (found.counts, found.ended) == ({ItemState.REPLAYED: 1}, True)


def test_its_record_is_ordered_and_can_be_claimed(books: Books) -> None:
    """One order goes to the main topic; the new record is free, the old one is stale."""
    (one,) = dead(books, "a")

    replayed(books)

    (order,) = books.rows(tables.outbox)
    assert (order.destination, order.group_name, unpack(order.items)) == (
        "tasks",
        GROUP,
        ((outbox.TASK, one, 1),),
    )
    owner = books.agent().next_owner()
    assert books.claim(one, owner, fence=0) is Answer.STALE
    assert books.claim(one, owner, fence=1) is Answer.CLAIMED


def test_the_story_goes_on(books: Books) -> None:
    """Earlier attempts stay in the history.

    The task may succeed, or die once more with a dead letter of its own.
    """
    one, two = dead(books, "a", "b")
    replayed(books)

    killed(books, one, SUCCEEDED)
    killed(books, two, EXPIRED)

    assert (books.status(one), books.status(two)) == (Status.SUCCEEDED, Status.DEAD)
    assert [row.fence for row in books.rows(tables.task_attempt)] == [0, 0, 1]
    (letter,) = books.rows(tables.dead_letter)
    assert (letter.task_id, letter.fence, letter.disposition) == (two, 1, "expired")


def test_replaying_twice_is_replaying_once(books: Books) -> None:
    """A second run over the same deaths finds none.

    A run that was stored before the first was applied passes them over.
    """
    ids = dead(books, "a", "b")
    first, second = stored(books, wish()), stored(books, wish())

    done, again = applied(books, first), applied(books, second)

    assert stored(books, wish()) is None
    assert (done.counts, again.counts) == ({ItemState.REPLAYED: 2}, {ItemState.PASSED: 2})
    assert again.items == []
    assert [books.task(one).replays for one in ids] == [1, 1]


def test_a_later_death_is_not_the_one_that_was_stored(books: Books) -> None:
    """A task that others replayed and that died again has another fence.

    An old run leaves it alone.
    """
    (one,) = dead(books, "a")
    old = stored(books, wish())
    replayed(books)
    killed(books, one)
    delivered(books)

    found = applied(books, old)

    assert found.counts == {ItemState.PASSED: 1}
    assert (books.status(one), books.task(one).replays) == (Status.DEAD, 1)


def test_only_what_is_selected_is_replayed(books: Books) -> None:
    """Every other task stays dead."""
    one, two = dead(books, "a", "b")
    (three,) = dead(books, "a", into="other")

    replayed(books, key="a", batch=BATCH)

    assert [books.status(each) for each in (one, two, three)] == [
        Status.PENDING,
        Status.DEAD,
        Status.DEAD,
    ]


def test_a_limit_takes_the_oldest(books: Books) -> None:
    """A limit takes the first tasks, in the order of loading."""
    ids = dead(books, "a", "b", "c")

    replayed(books, limit=2)

    assert [books.status(one) for one in ids] == [Status.PENDING, Status.PENDING, Status.DEAD]


def test_the_cap_ends_the_circle(books: Books) -> None:
    """A task that was replayed as often as the cap allows is left; a higher cap takes it."""
    (one,) = dead(books, "a")
    books.set(tables.task, one, replays=3)
    later = stored(books, wish(cap=4))
    books.set(tables.task, one, replays=4)

    assert stored(books, wish(cap=3)) is None
    assert applied(books, later).counts == {ItemState.PASSED: 1}
    assert replayed(books, cap=5).counts == {ItemState.REPLAYED: 1}
    assert books.task(one).replays == 5


def test_a_letter_that_is_not_on_its_topic_holds_its_task_back(books: Books) -> None:
    """A dead letter is built from its row, so the task waits until its dead letter arrived.

    The other tasks of the page are replayed.
    """
    one, two = books.load("a", "b")
    killed(books, one)
    delivered(books)
    killed(books, two)
    run = stored(books, wish())

    early = applied(books, run)
    delivered(books)
    late = applied(books, run)

    assert (early.ended, early.counts) == (False, {ItemState.REPLAYED: 1, ItemState.WAITS: 1})
    assert [page.early for page in early.pages] == [1]
    assert (late.ended, late.counts) == (True, {ItemState.REPLAYED: 2})


def test_pages_follow_one_another(books: Books) -> None:
    """Each page is a transaction with an order of its own, and no task is left out."""
    ids = dead(books, *(f"k{number}" for number in range(7)))

    found = applied(books, stored(books, wish()), size=3)

    assert [page.done for page in found.pages] == [3, 3, 1]
    assert [item[1] for item in found.items] == ids
    assert {books.status(one) for one in ids} == {Status.PENDING}


def test_counts_stay_right(books: Books) -> None:
    """A replay lowers `dead` and its error class, and raises `pending`.

    The money that was spent stays spent.
    """
    dead(books, "a", "b")
    dead(books, "c", outcome=EXPIRED)
    (done,) = books.load("d")
    killed(books, done, SUCCEEDED)
    assert counts(books) == {"total": 4, "dead": 3, "succeeded": 1}

    replayed(books, dispositions=("permanent",))

    (shown,) = books.run(lambda c: status.read(c, GROUP)).batches
    assert counts(books) == {"total": 4, "pending": 2, "dead": 1, "succeeded": 1}
    assert shown.failures == {"dead EXPIRED": 1}
    assert (shown.tokens_in, shown.cost) == (40, pytest.approx(0.0012))
    assert shown.rate_per_s > 0


def test_counts_stay_right_over_many_deaths(books: Books) -> None:
    """Replayed, dead again, replayed again and succeeded: the task is counted once."""
    (one,) = dead(books, "a")
    for _ in range(2):
        replayed(books)
        assert counts(books) == {"total": 1, "pending": 1}
        killed(books, one)
        delivered(books)
        assert counts(books) == {"total": 1, "dead": 1}
    replayed(books)
    killed(books, one, SUCCEEDED)

    assert counts(books) == {"total": 1, "succeeded": 1}


def test_a_late_settle_of_the_last_owner_is_fenced(books: Books) -> None:
    """An agent that was taken for dead cannot write to a task that was replayed since."""
    (one,) = books.load("a")
    owner = books.agent().next_owner()
    row = books.claimed(one, owner)
    books.settle(row, owner, DEAD)
    delivered(books)
    replayed(books)

    assert books.settle(row, owner, SUCCEEDED) is not Verdict.GIVEN_UP

    assert (books.status(one), books.count(tables.task_result)) == (Status.PENDING, 0)


# ---- at the same time


def test_two_replays_at_once_replay_each_task_once(books: Books) -> None:
    """Two runs over the same deaths, with two processes each, replay no task twice."""
    ids = dead(books, *(f"k{number}" for number in range(60)), outcome=TOO_LONG)
    runs = [stored(books, wish()), stored(books, wish())]

    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda run: applied(books, run, size=7), [runs[0], runs[0], runs[1], runs[1]])
        )

    assert {books.task(one).replays for one in ids} == {1}
    assert {books.task(one).fence for one in ids} == {1}
    items = [item for one in found for item in one.items]
    assert sorted(items) == sorted(set(items)) == [(outbox.TASK, one, 1) for one in ids]
    assert counts(books) == {"total": 60, "pending": 60}


def test_a_cancel_at_once_with_a_replay(books: Books) -> None:
    """Whoever comes last wins; every task is in one state, and the counts agree with it."""
    ids = dead(books, *(f"k{number}" for number in range(40)))
    run = stored(books, wish())
    batch_id = books.batch().id

    def cancel_all() -> None:
        books.cancel()
        books.run(lambda c: cancel.cancel_page(c, batch_id, b""))

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(applied, books, run, 5), pool.submit(cancel_all)]
        for one in done:
            one.result()
    books.run(lambda c: cancel.cancel_page(c, batch_id, b""))

    states = [books.status(one) for one in ids]
    assert set(states) <= {Status.DEAD, Status.CANCELLED}
    assert counts(books) == {"total": 40} | {
        name: count
        for name, count in (
            ("dead", states.count(Status.DEAD)),
            ("cancelled", states.count(Status.CANCELLED)),
        )
        if count
    }


def test_a_page_that_is_taken_twice_is_applied_once(books: Books) -> None:
    """A page whose answer was lost is requested again, and the next items are returned."""
    ids = dead(books, "a", "b")
    run = stored(books, wish())
    assert run is not None

    first = books.run(lambda c: tasks.apply(c, GROUP, run.id, run.wish, 0, 1))
    again = books.run(lambda c: tasks.apply(c, GROUP, run.id, run.wish, 0, 1))

    assert first is not None
    assert again is not None
    assert (first.last, again.last) == tuple(ids)
    assert books.run(lambda c: replay_runs.end(c, run.id))
    assert {books.task(one).replays for one in ids} == {1}
