"""A run of a replay is stored whole before anything is applied.

A half-stored run is dropped, a whole run is resumed.
"""

from datetime import timedelta

import pytest

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.estimate import Estimate
from docllm.producer.ledger import replay_progress
from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.dead_letters.failure_groups import TotalCost
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.replay import plan, runs
from docllm.producer.replay.plan import ReplayPlan
from docllm.producer.replay.runs import Cursor, DroppedError
from docllm.schemas.ledger import tables
from docllm.schemas.settings.config import Config, Price
from docllm.schemas.task.states import Status
from tests.contract.support.ledger_dead import (
    EXPIRED,
    applied,
    dead,
    killed,
    request,
    set_aside,
    set_dead,
    stored,
)
from tests.support.ledger_database import BATCH, GROUP, SUCCEEDED, LedgerDatabase, new_task

LINE = b'{"id": "a", "prompt": "Say hello", "model": "small"}'


def begun(ledger_db: LedgerDatabase, replay_request: ReplayRequest) -> tuple[int, Cursor | None]:
    """Begin to store a run; return its id and where the storing goes on."""
    run_id = ledger_db.call(runs.begin, GROUP, "ann", replay_request)
    return run_id, ledger_db.call(
        runs.store, group=GROUP, run_id=run_id, request=replay_request, start=Cursor()
    )


def planned(ledger_db: LedgerDatabase, replay_request: ReplayRequest) -> ReplayPlan:
    return ledger_db.call(plan.plan, GROUP, replay_request)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two items per page."""
    monkeypatch.setattr(runs, "STORED_PAGE", 2)


def test_a_run_records_its_actor_and_its_selection(ledger_db: LedgerDatabase) -> None:
    """The row and the audit have the person, the time, the selection and the number of items."""
    dead(ledger_db, "a", "b")

    run = stored(ledger_db, request(batch=BATCH, dispositions=("permanent",)))

    assert run is not None
    assert (run.actor, run.total, run.left, run.ended_at) == ("ann", 2, 2, None)
    assert run.request.selection == Selection(batch=BATCH, dispositions=("permanent",))
    assert (entry := ledger_db.rows(tables.audit)[-1]).actor == "ann"
    assert (entry.action, entry.detail) == (
        "replay",
        f"replay {run.id} of group {GROUP}: 2 items, --disposition permanent --batch {BATCH}",
    )


def test_items_are_deaths(ledger_db: LedgerDatabase) -> None:
    """Each item is a task with the fence of its death, or a record."""
    first, second = dead(ledger_db, "a", "b")
    set_dead(ledger_db, second, fence=4)
    (record,) = set_aside(ledger_db, b"x")

    stored(ledger_db, request(dispositions=("permanent", "undecodable")))

    assert [
        (row.kind, row.item_id, row.fence, row.state) for row in ledger_db.rows(tables.replay_item)
    ] == [
        (TASK, first, 0, 0),
        (TASK, second, 4, 0),
        (QUARANTINE, record, 0, 0),
    ]


@pytest.mark.usefixtures("small_pages")
def test_pages_store_everything_once(ledger_db: LedgerDatabase) -> None:
    """Every task and record is stored, tasks first, whatever the size of the last page."""
    ids = dead(ledger_db, "a", "b", "c", "d")
    records = set_aside(ledger_db, b"1", b"2", b"3")

    run = stored(ledger_db, request(dispositions=("permanent", "undecodable")))

    assert run is not None
    assert run.total == 7
    assert [(row.kind, row.item_id) for row in ledger_db.rows(tables.replay_item)] == [
        (TASK, task_id) for task_id in ids
    ] + [(QUARANTINE, record_id) for record_id in records]


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
def test_a_limit_counts_tasks_and_records(
    ledger_db: LedgerDatabase, limit: int, kinds: list[int]
) -> None:
    """Tasks come first, then records, over all pages."""
    dead(ledger_db, "a", "b", "c")
    set_aside(ledger_db, b"1", b"2")

    stored(ledger_db, request(dispositions=("permanent", "undecodable"), limit=limit))

    assert [row.kind for row in ledger_db.rows(tables.replay_item)] == kinds


def test_nothing_selected_is_no_run(ledger_db: LedgerDatabase) -> None:
    """A run without items leaves no trace."""
    assert stored(ledger_db, request()) is None
    assert ledger_db.count(tables.replay_run) == ledger_db.count(tables.audit) == 0


@pytest.mark.usefixtures("small_pages")
def test_a_run_that_was_killed_while_it_was_stored_is_dropped(ledger_db: LedgerDatabase) -> None:
    """Such a run is neither shown nor resumed.

    If its process lives, an error makes it begin again.
    """
    ids = dead(ledger_db, "a", "b", "c")
    replay_request = request()
    run_id, place = begun(ledger_db, replay_request)
    assert place is not None

    assert ledger_db.call(runs.drop_unstored, GROUP) == 1

    assert (
        ledger_db.call(replay_progress.unfinished, GROUP)
        == ledger_db.call(replay_progress.latest, GROUP, 9)
        == []
    )
    with pytest.raises(DroppedError):
        ledger_db.call(runs.store, group=GROUP, run_id=run_id, request=replay_request, start=place)
    assert ledger_db.call(runs.drop_unstored, GROUP) == 0
    assert {ledger_db.status(each) for each in ids} == {Status.DEAD}


def test_a_stored_run_is_never_dropped(ledger_db: LedgerDatabase) -> None:
    """A stored run is unfinished until its last item is finished; then it has ended."""
    dead(ledger_db, "a")
    run = stored(ledger_db, request())
    assert run is not None

    assert ledger_db.call(runs.drop_unstored, GROUP) == 0
    assert [unfinished.id for unfinished in ledger_db.call(replay_progress.unfinished, GROUP)] == [
        run.id
    ]
    assert not ledger_db.call(runs.end, run.id)

    applied(ledger_db, run)

    assert ledger_db.call(replay_progress.unfinished, GROUP) == []
    (shown,) = ledger_db.call(replay_progress.latest, GROUP, 9)
    assert shown.ended_at is not None
    assert shown.counts == {ItemState.REPLAYED: 1}


def test_another_groups_runs_are_its_own(ledger_db: LedgerDatabase) -> None:
    """Another group's runs are neither shown, resumed nor dropped here."""
    (task_id,) = ledger_db.load("a", into="theirs", group="other")
    killed(ledger_db, task_id)
    run_id = ledger_db.call(runs.begin, "other", "bob", request())
    ledger_db.call(runs.store, group="other", run_id=run_id, request=request(), start=Cursor())

    assert ledger_db.call(replay_progress.unfinished, GROUP) == []
    assert ledger_db.call(replay_progress.latest, GROUP, 9) == []
    assert [run.id for run in ledger_db.call(replay_progress.unfinished, "other")] == [run_id]


def test_storing_is_safe_to_run_again(ledger_db: LedgerDatabase) -> None:
    """A transaction whose answer was lost is run again.

    It gives the same run, the same items and one audit row.
    """
    dead(ledger_db, "a", "b")
    replay_request = ReplayRequest(Selection(), nonce="drawn once")

    first, again = begun(ledger_db, replay_request), begun(ledger_db, replay_request)

    assert first == again
    assert (
        ledger_db.count(tables.replay_run),
        ledger_db.count(tables.replay_item),
        ledger_db.count(tables.audit),
    ) == (1, 2, 1)


def test_the_newest_runs_are_shown_first(ledger_db: LedgerDatabase) -> None:
    """As many runs as requested are shown."""
    ids = []
    for key in ("a", "b", "c"):
        dead(ledger_db, key)
        run = stored(ledger_db, request(key=key))
        assert run is not None
        ids.append(run.id)

    assert [run.id for run in ledger_db.call(replay_progress.latest, GROUP, 2)] == [
        ids[2],
        ids[1],
    ]


# ---- the plan


def test_a_plan_equals_the_run_that_follows(ledger_db: LedgerDatabase) -> None:
    """A plan has the counts by group and the cost so far, and it changes nothing."""
    dead(ledger_db, "a", "b")
    dead(ledger_db, "c", outcome=EXPIRED)
    set_aside(ledger_db, b"1")

    plan = planned(ledger_db, request())

    assert (plan.tasks, plan.records, plan.quarantined) == (3, 0, 1)
    assert [(group.count, group.disposition) for group in plan.groups] == [
        (2, "permanent"),
        (1, "expired"),
    ]
    # The task whose deadline passed had no attempt of its own.
    assert (plan.spent.attempts, plan.spent.tokens_in, plan.spent.cost_micro) == (2, 30, 900)
    assert ledger_db.count(tables.replay_run) == 0


def test_a_plan_counts_the_remaining_items(ledger_db: LedgerDatabase) -> None:
    """A plan counts the tasks left at the cap or in a cancelled batch.

    It also counts tasks that are replayed past their deadline.
    """
    capped, _, late = dead(ledger_db, "a", "b", "c")
    dead(ledger_db, "d", into="closed")
    ledger_db.cancel("closed")
    set_dead(ledger_db, capped, replays=3)
    yesterday = ledger_db.run(selection_query.now) - timedelta(days=1)
    set_dead(ledger_db, late, expires_at=yesterday)

    plan = planned(ledger_db, request())

    assert (plan.tasks, plan.capped, plan.closed, plan.late) == (2, 1, 1, 1)
    assert sum(group.count for group in plan.groups) == 2


def test_a_plan_is_exact_however_many_are_capped(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If too many reached the cap to be read one by one, the dead letters are counted."""
    capped = dead(ledger_db, "a", "b", "c")
    dead(ledger_db, "d", outcome=EXPIRED)
    dead(ledger_db, "e", into="closed")
    ledger_db.cancel("closed")
    for task_id in capped[:2]:
        set_dead(ledger_db, task_id, replays=3)
    plans = []
    for most in (100, 2):
        monkeypatch.setattr(plan, "MAX_READ", most)
        plans.append(planned(ledger_db, request()))

    assert plans[0].tasks == plans[1].tasks == 2
    assert plans[0].spent == plans[1].spent
    assert [(group.fingerprint, group.count) for group in plans[0].groups] == [
        (group.fingerprint, group.count) for group in plans[1].groups
    ]
    assert {(each.capped, each.closed) for each in plans} == {(2, 1)}
    run = stored(ledger_db, request())
    assert run is not None
    assert run.total == 2


def test_a_plan_of_one_batch_is_of_that_batch(ledger_db: LedgerDatabase) -> None:
    """The plan, and the run, leave the dead letters of other batches between those of the batch."""
    for number in range(3):
        dead(ledger_db, f"a{number}")
        dead(ledger_db, f"b{number}", into="other")

    plan = planned(ledger_db, request(batch=BATCH))
    run = stored(ledger_db, request(batch=BATCH))

    assert plan.tasks == 3
    assert run is not None
    assert run.total == 3


@pytest.mark.parametrize(
    ("limit", "tasks", "records"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (9, 2, 2)]
)
def test_a_plan_knows_its_limit(
    ledger_db: LedgerDatabase, limit: int, tasks: int, records: int
) -> None:
    """The groups have only the items within the limit."""
    dead(ledger_db, "a", "b")
    set_aside(ledger_db, b"1", b"2")

    plan = planned(ledger_db, request(dispositions=("permanent", "undecodable"), limit=limit))

    assert (plan.tasks, plan.records) == (tasks, records)
    assert sum(group.count for group in plan.groups) == tasks + records
    assert plan.spent.attempts == tasks


def test_a_plan_of_cancelled_tasks_counts_batches(ledger_db: LedgerDatabase) -> None:
    """Cancelled tasks died of nothing, so there are no errors to group by."""
    for name in ("one", "two"):
        (first, _) = ledger_db.load("a", "b", into=name)
        ledger_db.set(tables.task, first, status=int(Status.CANCELLED))

    plan = planned(ledger_db, request(cancelled=True))

    assert (plan.tasks, list(plan.batches), list(plan.groups)) == (
        2,
        [("one", 1), ("two", 1)],
        [],
    )


def test_one_more_attempt_is_measured_on_the_inputs(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes by model of the texts of the first inputs are scaled to all tasks.

    The estimate has a price if the model has one.
    """
    monkeypatch.setattr(plan, "SAMPLE", 2)
    tasks = [
        new_task(key, LINE.replace(b'"a"', f'"{key}"'.encode())) for key in ("a", "b", "c", "d")
    ]
    for task_id in ledger_db.accept(tasks, ledger_db.batch()).new.values():
        killed(ledger_db, task_id)
    estimate = Estimate(TaskAccounts(Config(prices={"small": Price(4_000_000.0, 0.0)})))

    plan.measure(
        read=ledger_db.database.run_singly,
        group=GROUP,
        request=request(),
        tasks=4,
        estimate=estimate,
    )

    assert (estimate.tasks, estimate.tokens_in) == (4, 4 * len("Say hello") // 4)
    assert estimate.cost == pytest.approx(4.0 * len("Say hello"))


def test_one_more_attempt_of_the_first_ones_is_measured_on_these_alone(
    ledger_db: LedgerDatabase,
) -> None:
    """With a limit the other tasks are not replayed, so their inputs are not read.

    They do not count either, although they may be a thousand times as large.
    """
    short, long = (
        LINE.replace(b"hello", b"hi"),
        LINE.replace(b'"a"', b'"b"').replace(b"hello", b"x" * 4000),
    )
    tasks = [new_task("a", short), new_task("b", long)]
    for task_id in ledger_db.accept(tasks, ledger_db.batch()).new.values():
        killed(ledger_db, task_id)
    estimate = Estimate(TaskAccounts(Config()))

    plan.measure(
        read=ledger_db.database.run_singly,
        group=GROUP,
        request=request(limit=1),
        tasks=1,
        estimate=estimate,
    )

    assert (estimate.tasks, estimate.tokens_in) == (1, len("Say hi") // 4)


def test_a_plan_of_nothing(ledger_db: LedgerDatabase) -> None:
    """No task is dead: nothing to do, nothing spent, nothing left."""
    (task_id,) = ledger_db.load("a")
    killed(ledger_db, task_id, SUCCEEDED)

    plan = planned(ledger_db, request())

    assert (plan.tasks, plan.records, list(plan.groups), plan.spent) == (0, 0, [], TotalCost())
    assert (plan.late, plan.capped, plan.closed, plan.quarantined) == (0, 0, 0, 0)
