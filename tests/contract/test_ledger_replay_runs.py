"""A run of a replay is stored whole before anything is applied.

A half-stored run is dropped, a whole run is resumed.
"""

from datetime import timedelta

import pytest

from producer.input.estimate import Estimate
from producer.ledger import selection_query
from producer.ledger.dead_letters import Spent
from producer.ledger.outbox import QUARANTINE, TASK
from producer.ledger.selection import Selection
from producer.replay import plan, runs
from producer.replay.plan import ReplayPlan
from producer.replay.runs import Cursor, DroppedError, ItemState, ReplayRequest
from schemas.ledger import tables
from schemas.settings.config import Config, Price
from schemas.task.states import Status
from tests.contract.ledger_dead import EXPIRED, applied, dead, killed, set_aside, stored, wish
from tests.contract.ledger_parts import BATCH, GROUP, SUCCEEDED, Books, new_task

LINE = b'{"id": "a", "prompt": "Say hello", "model": "small"}'


def begun(books: Books, one: ReplayRequest) -> tuple[int, Cursor | None]:
    """Begin to store a run; return its id and where the storing goes on."""
    run_id = books.run(lambda c: runs.begin(c, GROUP, "ann", one))
    return run_id, books.run(lambda c: runs.store(c, GROUP, run_id, one, Cursor()))


def planned(books: Books, one: ReplayRequest) -> ReplayPlan:
    return books.run(lambda c: plan.plan(c, GROUP, one))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two items per page."""
    monkeypatch.setattr(runs, "STORED_PAGE", 2)


def test_a_run_says_who_wants_what(books: Books) -> None:
    """The row and the audit have the person, the time, the selection and the number of items."""
    dead(books, "a", "b")

    run = stored(books, wish(batch=BATCH, dispositions=("permanent",)))

    assert run is not None
    assert (run.actor, run.total, run.left, run.ended_at) == ("ann", 2, 2, None)
    assert run.wish.selection == Selection(batch=BATCH, dispositions=("permanent",))
    assert (entry := books.rows(tables.audit)[-1]).actor == "ann"
    assert (entry.action, entry.detail) == (
        "replay",
        f"replay {run.id} of group {GROUP}: 2 items, --disposition permanent --batch {BATCH}",
    )


def test_items_are_deaths(books: Books) -> None:
    """Each item is a task with the fence of its death, or a record."""
    one, two = dead(books, "a", "b")
    books.set(tables.task, two, fence=4)
    (record,) = set_aside(books, b"x")

    stored(books, wish(dispositions=("permanent", "undecodable")))

    assert [
        (row.kind, row.item_id, row.fence, row.state) for row in books.rows(tables.replay_item)
    ] == [
        (TASK, one, 0, 0),
        (TASK, two, 4, 0),
        (QUARANTINE, record, 0, 0),
    ]


@pytest.mark.usefixtures("small_pages")
def test_pages_store_everything_once(books: Books) -> None:
    """Every task and record is stored, tasks first, whatever the size of the last page."""
    ids = dead(books, "a", "b", "c", "d")
    records = set_aside(books, b"1", b"2", b"3")

    run = stored(books, wish(dispositions=("permanent", "undecodable")))

    assert run is not None
    assert run.total == 7
    assert [(row.kind, row.item_id) for row in books.rows(tables.replay_item)] == [
        (TASK, one) for one in ids
    ] + [(QUARANTINE, one) for one in records]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    ("limit", "kinds"),
    [
        (1, [TASK]),
        (2, [TASK] * 2),
        (3, [TASK] * 3),
        (4, [TASK] * 3 + [QUARANTINE]),
        (9, [TASK] * 3 + [QUARANTINE] * 2),
    ],
)
def test_a_limit_counts_tasks_and_records(books: Books, limit: int, kinds: list[int]) -> None:
    """Tasks come first, then records, over all pages."""
    dead(books, "a", "b", "c")
    set_aside(books, b"1", b"2")

    stored(books, wish(dispositions=("permanent", "undecodable"), limit=limit))

    assert [row.kind for row in books.rows(tables.replay_item)] == kinds


def test_nothing_selected_is_no_run(books: Books) -> None:
    """A run without items leaves no trace."""
    assert stored(books, wish()) is None
    assert books.count(tables.replay_run) == books.count(tables.audit) == 0


@pytest.mark.usefixtures("small_pages")
def test_a_run_that_was_killed_while_it_was_stored_is_dropped(books: Books) -> None:
    """Such a run is neither shown nor resumed.

    If its process lives, an error makes it begin again.
    """
    ids = dead(books, "a", "b", "c")
    one = wish()
    run_id, place = begun(books, one)
    assert place is not None

    assert books.run(lambda c: runs.drop_unstored(c, GROUP)) == 1

    assert (
        books.run(lambda c: runs.unfinished(c, GROUP))
        == books.run(lambda c: runs.latest(c, GROUP, 9))
        == []
    )
    with pytest.raises(DroppedError):
        books.run(lambda c: runs.store(c, GROUP, run_id, one, place))
    assert books.run(lambda c: runs.drop_unstored(c, GROUP)) == 0
    assert {books.status(each) for each in ids} == {Status.DEAD}


def test_a_stored_run_is_never_dropped(books: Books) -> None:
    """A stored run is unfinished until its last item is finished; then it has ended."""
    dead(books, "a")
    run = stored(books, wish())
    assert run is not None

    assert books.run(lambda c: runs.drop_unstored(c, GROUP)) == 0
    assert [one.id for one in books.run(lambda c: runs.unfinished(c, GROUP))] == [run.id]
    assert not books.run(lambda c: runs.end(c, run.id))

    applied(books, run)

    assert books.run(lambda c: runs.unfinished(c, GROUP)) == []
    (shown,) = books.run(lambda c: runs.latest(c, GROUP, 9))
    assert shown.ended_at is not None
    assert shown.counts == {ItemState.REPLAYED: 1}


def test_another_groups_runs_are_its_own(books: Books) -> None:
    """Another group's runs are neither shown, resumed nor dropped here."""
    (one,) = books.load("a", into="theirs", group="other")
    killed(books, one)
    run_id = books.run(lambda c: runs.begin(c, "other", "bob", wish()))
    books.run(lambda c: runs.store(c, "other", run_id, wish(), Cursor()))

    assert books.run(lambda c: runs.unfinished(c, GROUP)) == []
    assert books.run(lambda c: runs.latest(c, GROUP, 9)) == []
    assert [run.id for run in books.run(lambda c: runs.unfinished(c, "other"))] == [run_id]


def test_storing_is_safe_to_run_again(books: Books) -> None:
    """A transaction whose answer was lost is run again.

    It gives the same run, the same items and one audit row.
    """
    dead(books, "a", "b")
    one = ReplayRequest(Selection(), nonce="drawn once")

    first, again = begun(books, one), begun(books, one)

    assert first == again
    assert (
        books.count(tables.replay_run),
        books.count(tables.replay_item),
        books.count(tables.audit),
    ) == (1, 2, 1)


def test_the_newest_runs_are_shown_first(books: Books) -> None:
    """As many runs as requested are shown."""
    ids = []
    for key in ("a", "b", "c"):
        dead(books, key)
        run = stored(books, wish(key=key))
        assert run is not None
        ids.append(run.id)

    assert [run.id for run in books.run(lambda c: runs.latest(c, GROUP, 2))] == [ids[2], ids[1]]


# ---- the plan


def test_a_plan_is_what_a_run_would_be(books: Books) -> None:
    """A plan has the counts by group and the cost so far, and it changes nothing."""
    dead(books, "a", "b")
    dead(books, "c", outcome=EXPIRED)
    set_aside(books, b"1")

    found = planned(books, wish())

    assert (found.tasks, found.records, found.quarantined) == (3, 0, 1)
    assert [(one.count, one.disposition) for one in found.groups] == [
        (2, "permanent"),
        (1, "expired"),
    ]
    assert (found.spent.attempts, found.spent.tokens_in, found.spent.cost_micro) == (3, 30, 900)
    assert books.count(tables.replay_run) == 0


def test_a_plan_says_what_is_left(books: Books) -> None:
    """A plan counts the tasks left at the cap or in a cancelled batch.

    It also counts tasks that are replayed past their deadline.
    """
    capped, _, late = dead(books, "a", "b", "c")
    dead(books, "d", into="closed")
    books.cancel("closed")
    books.set(tables.task, capped, replays=3)
    books.set(tables.task, late, expires_at=books.run(selection_query.now) - timedelta(days=1))

    found = planned(books, wish())

    assert (found.tasks, found.capped, found.closed, found.late) == (2, 1, 1, 1)
    assert sum(one.count for one in found.groups) == 2


@pytest.mark.parametrize(
    ("limit", "tasks", "records"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (9, 2, 2)]
)
def test_a_plan_knows_its_limit(books: Books, limit: int, tasks: int, records: int) -> None:
    """The groups have only the items within the limit."""
    dead(books, "a", "b")
    set_aside(books, b"1", b"2")

    found = planned(books, wish(dispositions=("permanent", "undecodable"), limit=limit))

    assert (found.tasks, found.records) == (tasks, records)
    assert sum(one.count for one in found.groups) == tasks + records
    assert found.spent.attempts == tasks


def test_a_plan_of_cancelled_tasks_counts_batches(books: Books) -> None:
    """Cancelled tasks died of nothing, so there are no errors to group by."""
    for name in ("one", "two"):
        (first, _) = books.load("a", "b", into=name)
        books.set(tables.task, first, status=int(Status.CANCELLED))

    found = planned(books, wish(cancelled=True))

    assert (found.tasks, list(found.batches), list(found.groups)) == (
        2,
        [("one", 1), ("two", 1)],
        [],
    )


def test_one_more_attempt_is_measured_on_the_inputs(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes by model of the first inputs are scaled to all tasks.

    The estimate has a price if the model has one.
    """
    monkeypatch.setattr(plan, "SAMPLE", 2)
    tasks = [
        new_task(key, LINE.replace(b'"a"', f'"{key}"'.encode())) for key in ("a", "b", "c", "d")
    ]
    for one in books.accept(tasks, books.batch()).new.values():
        killed(books, one)
    estimate = Estimate(Config(prices={"small": Price(4_000_000.0, 0.0)}))

    plan.measure(books.database.auto, GROUP, wish(), 4, estimate)

    assert (estimate.tasks, estimate.tokens_in) == (4, 4 * len(LINE) // 4)
    assert estimate.cost == pytest.approx(4.0 * len(LINE))


def test_one_more_attempt_of_the_first_ones_is_measured_on_these_alone(books: Books) -> None:
    """With a limit the other tasks are not replayed, so their inputs are not read.

    They do not count either, although they may be a thousand times as large.
    """
    short, long = (
        LINE.replace(b"hello", b"hi"),
        LINE.replace(b'"a"', b'"b"').replace(b"hello", b"x" * 4000),
    )
    tasks = [new_task("a", short), new_task("b", long)]
    for one in books.accept(tasks, books.batch()).new.values():
        killed(books, one)
    estimate = Estimate(Config())

    plan.measure(books.database.auto, GROUP, wish(limit=1), 1, estimate)

    assert (estimate.tasks, estimate.tokens_in) == (1, len(short) // 4)


def test_a_plan_of_nothing(books: Books) -> None:
    """No task is dead: nothing to do, nothing spent, nothing left."""
    (one,) = books.load("a")
    killed(books, one, SUCCEEDED)

    found = planned(books, wish())

    assert (found.tasks, found.records, list(found.groups), found.spent) == (0, 0, [], Spent())
    assert (found.late, found.capped, found.closed, found.quarantined) == (0, 0, 0, 0)
