"""A replay gives a dead or cancelled task a fresh start, once, whatever else happens to it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.producer.ledger import cancel, outbox
from docllm.producer.ledger.outbox import unpack
from docllm.producer.ledger.replay_progress import ItemState
from docllm.producer.ledger.status import group_status
from docllm.producer.replay import runs as replay_runs
from docllm.producer.replay import tasks
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import Status
from tests.contract.support.ledger_dead import (
    EXPIRED,
    applied,
    counts,
    dead,
    delivered,
    killed,
    replayed,
    request,
    set_dead,
    stored,
)
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    RETRY,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
)


def test_a_replayed_task_starts_afresh(ledger_db: LedgerDatabase) -> None:
    """The task is pending and due at once, with a new fence and one more replay.

    No attempt and no loss is counted any more, and its dead letter is gone.
    """
    (task_id,) = ledger_db.load("a")
    killed(ledger_db, task_id, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    killed(ledger_db, task_id)
    delivered(ledger_db)
    ledger_db.set(tables.task, task_id, lease_losses=2)

    page = replayed(ledger_db, key="a")

    row = ledger_db.task(task_id)
    assert (row.status, row.fence, row.attempt, row.lease_losses, row.replays, row.owner) == (
        Status.PENDING,
        2,
        0,
        0,
        1,
        0,
    )
    assert ledger_db.due_in_s(task_id) <= 0
    assert ledger_db.count(tables.dead_letter) == 0
    assert page.items == [(outbox.TASK, task_id, 2)]
    assert (page.counts, page.ended) == ({ItemState.REPLAYED: 1}, True)


def test_its_record_is_ordered_and_can_be_claimed(ledger_db: LedgerDatabase) -> None:
    """One order goes to the main topic; the new record is free, the old one is stale."""
    (task_id,) = dead(ledger_db, "a")

    replayed(ledger_db)

    (order,) = ledger_db.rows(tables.outbox)
    assert (order.destination, order.group_name, unpack(order.items)) == (
        "tasks",
        GROUP,
        ((outbox.TASK, task_id, 1),),
    )
    owner = ledger_db.agent().next_owner()
    assert ledger_db.claim(task_id, owner, fence=0) is ClaimAnswer.STALE
    assert ledger_db.claim(task_id, owner, fence=1) is ClaimAnswer.CLAIMED


def test_the_story_goes_on(ledger_db: LedgerDatabase) -> None:
    """Earlier attempts stay in the history.

    The task may succeed, or die once more with a dead letter of its own.
    """
    first, second = dead(ledger_db, "a", "b")
    replayed(ledger_db)

    killed(ledger_db, first, SUCCEEDED)
    killed(ledger_db, second, EXPIRED)

    assert (ledger_db.status(first), ledger_db.status(second)) == (Status.SUCCEEDED, Status.DEAD)
    assert [row.fence for row in ledger_db.rows(tables.task_attempt)] == [0, 0, 1]
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.task_id, letter.fence, letter.disposition) == (second, 1, "expired")


def test_replaying_twice_is_replaying_once(ledger_db: LedgerDatabase) -> None:
    """A second run over the same deaths finds none.

    A run that was stored before the first was applied passes them over.
    """
    ids = dead(ledger_db, "a", "b")
    first, second = stored(ledger_db, request()), stored(ledger_db, request())

    done, again = applied(ledger_db, first), applied(ledger_db, second)

    assert stored(ledger_db, request()) is None
    assert (done.counts, again.counts) == ({ItemState.REPLAYED: 2}, {ItemState.SKIPPED: 2})
    assert again.items == []
    assert [ledger_db.task(task_id).replays for task_id in ids] == [1, 1]


def test_a_later_death_is_not_the_one_that_was_stored(ledger_db: LedgerDatabase) -> None:
    """A task that others replayed and that died again has another fence.

    An old run leaves it alone.
    """
    (task_id,) = dead(ledger_db, "a")
    old = stored(ledger_db, request())
    replayed(ledger_db)
    killed(ledger_db, task_id)
    delivered(ledger_db)

    page = applied(ledger_db, old)

    assert page.counts == {ItemState.SKIPPED: 1}
    assert (ledger_db.status(task_id), ledger_db.task(task_id).replays) == (Status.DEAD, 1)


def test_only_selected_tasks_are_replayed(ledger_db: LedgerDatabase) -> None:
    """Every other task stays dead."""
    first, second = dead(ledger_db, "a", "b")
    (third,) = dead(ledger_db, "a", into="other")

    replayed(ledger_db, key="a", batch=BATCH)

    assert [ledger_db.status(each) for each in (first, second, third)] == [
        Status.PENDING,
        Status.DEAD,
        Status.DEAD,
    ]


def test_a_limit_takes_the_oldest(ledger_db: LedgerDatabase) -> None:
    """A limit takes the first tasks, in the order of loading."""
    ids = dead(ledger_db, "a", "b", "c")

    replayed(ledger_db, limit=2)

    assert [ledger_db.status(task_id) for task_id in ids] == [
        Status.PENDING,
        Status.PENDING,
        Status.DEAD,
    ]


def test_the_cap_ends_the_circle(ledger_db: LedgerDatabase) -> None:
    """A task that was replayed as often as the cap allows is left; a higher cap takes it."""
    (task_id,) = dead(ledger_db, "a")
    set_dead(ledger_db, task_id, replays=3)
    later = stored(ledger_db, request(cap=4))
    set_dead(ledger_db, task_id, replays=4)

    assert stored(ledger_db, request(cap=3)) is None
    assert applied(ledger_db, later).counts == {ItemState.SKIPPED: 1}
    assert replayed(ledger_db, cap=5).counts == {ItemState.REPLAYED: 1}
    assert ledger_db.task(task_id).replays == 5


def test_a_letter_that_is_not_on_its_topic_holds_its_task_back(ledger_db: LedgerDatabase) -> None:
    """A dead letter is built from its row, so the task waits until its dead letter arrived.

    The other tasks of the page are replayed.
    """
    first, second = ledger_db.load("a", "b")
    killed(ledger_db, first)
    delivered(ledger_db)
    killed(ledger_db, second)
    run = stored(ledger_db, request())

    early = applied(ledger_db, run)
    delivered(ledger_db)
    late = applied(ledger_db, run)

    assert (early.ended, early.counts) == (False, {ItemState.REPLAYED: 1, ItemState.WAITS: 1})
    assert [page.early for page in early.pages] == [1]
    assert (late.ended, late.counts) == (True, {ItemState.REPLAYED: 2})


def test_pages_follow_one_another(ledger_db: LedgerDatabase) -> None:
    """Each page is a transaction with an order of its own, and no task is left out."""
    ids = dead(ledger_db, *(f"k{number}" for number in range(7)))

    result = applied(ledger_db, stored(ledger_db, request()), size=3)

    assert [page.done for page in result.pages] == [3, 3, 1]
    assert [item.id for item in result.items] == ids
    assert {ledger_db.status(task_id) for task_id in ids} == {Status.PENDING}


def test_counts_stay_right(ledger_db: LedgerDatabase) -> None:
    """A replay lowers `dead` and its error class, and raises `pending`.

    The money that was spent stays spent.
    """
    dead(ledger_db, "a", "b")
    dead(ledger_db, "c", outcome=EXPIRED)
    (done,) = ledger_db.load("d")
    killed(ledger_db, done, SUCCEEDED)
    assert counts(ledger_db) == {"total": 4, "dead": 3, "succeeded": 1}

    replayed(ledger_db, dispositions=("permanent",))

    (shown,) = ledger_db.call(group_status.read_group, GROUP).batches
    assert counts(ledger_db) == {"total": 4, "pending": 2, "dead": 1, "succeeded": 1}
    assert shown.failures == {"dead EXPIRED": 1}
    assert shown.tokens_in == 40
    assert shown.cost == pytest.approx(0.0012)
    assert shown.rate_per_s > 0


def test_counts_stay_right_over_many_deaths(ledger_db: LedgerDatabase) -> None:
    """Replayed, dead again, replayed again and succeeded: the task is counted once."""
    (task_id,) = dead(ledger_db, "a")
    for _ in range(2):
        replayed(ledger_db)
        assert counts(ledger_db) == {"total": 1, "pending": 1}
        killed(ledger_db, task_id)
        delivered(ledger_db)
        assert counts(ledger_db) == {"total": 1, "dead": 1}
    replayed(ledger_db)
    killed(ledger_db, task_id, SUCCEEDED)

    assert counts(ledger_db) == {"total": 1, "succeeded": 1}


def test_a_late_settle_of_the_last_owner_is_superseded(ledger_db: LedgerDatabase) -> None:
    """An agent that was taken for dead cannot write to a task that was replayed since."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    row = ledger_db.claimed(task_id, owner)
    ledger_db.settle(row, owner, DEAD)
    delivered(ledger_db)
    replayed(ledger_db)

    assert ledger_db.settle(row, owner, SUCCEEDED) is not Verdict.GIVEN_UP

    assert (ledger_db.status(task_id), ledger_db.count(tables.task_result)) == (Status.PENDING, 0)


# ---- at the same time


def test_two_replays_at_once_replay_each_task_once(ledger_db: LedgerDatabase) -> None:
    """Two runs over the same deaths, with two processes each, replay no task twice."""
    ids = dead(ledger_db, *(f"k{number}" for number in range(60)), outcome=TOO_LONG)
    runs = [stored(ledger_db, request()), stored(ledger_db, request())]

    with ThreadPoolExecutor(4) as pool:
        pages = list(
            pool.map(
                lambda run: applied(ledger_db, run, size=7), [runs[0], runs[0], runs[1], runs[1]]
            )
        )

    assert {ledger_db.task(task_id).replays for task_id in ids} == {1}
    assert {ledger_db.task(task_id).fence for task_id in ids} == {1}
    items = [item for page in pages for item in page.items]
    assert sorted(items) == sorted(set(items)) == [(outbox.TASK, task_id, 1) for task_id in ids]
    assert counts(ledger_db) == {"total": 60, "pending": 60}


def test_a_cancel_at_once_with_a_replay(ledger_db: LedgerDatabase) -> None:
    """Whoever comes last wins; every task is in one state, and the counts agree with it."""
    ids = dead(ledger_db, *(f"k{number}" for number in range(40)))
    run = stored(ledger_db, request())
    batch_id = ledger_db.batch().id

    def cancel_all() -> None:
        ledger_db.cancel()
        ledger_db.call(cancel.cancel_page, batch_id)

    with ThreadPoolExecutor(2) as pool:
        applying, cancelling = pool.submit(applied, ledger_db, run, 5), pool.submit(cancel_all)
        applying.result()
        cancelling.result()
    ledger_db.call(cancel.cancel_page, batch_id)

    states = [ledger_db.status(task_id) for task_id in ids]
    assert set(states) <= {Status.DEAD, Status.CANCELLED}
    assert counts(ledger_db) == {"total": 40} | {
        name: count
        for name, count in (
            ("dead", states.count(Status.DEAD)),
            ("cancelled", states.count(Status.CANCELLED)),
        )
        if count
    }


def test_a_page_that_is_taken_twice_is_applied_once(ledger_db: LedgerDatabase) -> None:
    """A page whose answer was lost is requested again, and the next items are returned."""
    ids = dead(ledger_db, "a", "b")
    run = stored(ledger_db, request())
    assert run is not None

    first = ledger_db.call(
        tasks.apply, group=GROUP, run_id=run.id, request=run.request, after=0, limit=1
    )
    again = ledger_db.call(
        tasks.apply, group=GROUP, run_id=run.id, request=run.request, after=0, limit=1
    )

    assert first is not None
    assert again is not None
    assert (first.last, again.last) == tuple(ids)
    assert ledger_db.call(replay_runs.end, run.id)
    assert {ledger_db.task(task_id).replays for task_id in ids} == {1}
