"""Follow-ups are made with the success of their parent, once, or not at all."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event

import orjson
import pytest

from docllm.agent.ledger.counts.compaction import CompactionLimits, compact
from docllm.agent.ports import Row, Verdict
from docllm.agent.ports.outcome import FollowUp, Outcome
from docllm.producer.ledger import store, task_story
from docllm.producer.ledger.results.export import ALL, export
from docllm.producer.ledger.results.result_lines import docllm_line
from docllm.producer.ledger.status import batch_status, progress
from docllm.producer.screen.task_page import story_json, story_lines
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import FOLLOW_UP, ErrorClass
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from tests.contract.claims.test_settle import reaped
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    RETRY,
    SPENT,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
    settlement,
)

DEADLINE = datetime(2030, 1, 1, tzinfo=UTC)


def follow_up(key: str, value: bytes = b"line", lane: Lane = Lane.NORMAL) -> FollowUp:
    return FollowUp(
        key=key,
        value=value,
        type="document",
        tenant="acme",
        max_attempts=3,
        deadline=DEADLINE,
        lane=lane,
    )


def ordering(*follow_ups: FollowUp) -> Outcome:
    return replace(SUCCEEDED, follow_ups=follow_ups)


def parent(ledger_db: LedgerDatabase, key: str = "a") -> tuple[int, Row, int]:
    """Load and claim a task; return its id, its row and the claim's owner."""
    (task_id,) = ledger_db.load(key)
    owner = ledger_db.agent().next_owner()
    return task_id, ledger_db.claimed(task_id, owner), owner


def keys(ledger_db: LedgerDatabase) -> list[str]:
    return [row.task_key.decode() for row in ledger_db.rows(tables.task)]


def test_follow_ups_are_made_with_their_parent_s_success(ledger_db: LedgerDatabase) -> None:
    """Rows, inputs, counts and orders are written; each child names its parent and its lane."""
    task_id, row, owner = parent(ledger_db)

    verdicts, orders = ledger_db.settle_all(
        [
            settlement(
                row, owner, ordering(follow_up("a/1"), follow_up("a/2", b"other", Lane.URGENT))
            )
        ]
    )

    first, second = ledger_db.rows(tables.task)[1:]
    assert verdicts == [Verdict.SETTLED]
    assert [(child.task_key, child.parent_id, child.depth) for child in (first, second)] == [
        (b"a/1", task_id, 1),
        (b"a/2", task_id, 1),
    ]
    assert (first.status, first.tenant, first.max_attempts) == (Status.PENDING, "acme", 3)
    assert (first.expires_at, first.digest) == (
        DEADLINE.replace(tzinfo=None),
        digest(b"a/1", b"line"),
    )
    assert (second.lane, second.carrier) == (Lane.URGENT, "tasks.urgent")
    assert [row.body for row in ledger_db.rows(tables.task_input)[1:]] == [b"line", b"other"]
    assert {(order.destination, order.items) for order in orders} == {
        ("tasks", ((0, first.id, 0),)),
        ("tasks.urgent", ((0, second.id, 0),)),
    }
    (status,) = ledger_db.call(batch_status.read_batches, GROUP)
    assert (status.counts["total"], status.counts["succeeded"], status.open) == (3, 1, 2)
    assert ledger_db.call(progress.read_totals, GROUP).open == 2
    assert [count.disposition for count in ledger_db.rows(tables.tally)] == ["", FOLLOW_UP, ""]


def test_screens_and_exports_know_parents(ledger_db: LedgerDatabase) -> None:
    """A status counts follow-ups, an export names the parent, a story ancestors and children."""
    _, row, owner = parent(ledger_db)
    ledger_db.settle(row, owner, ordering(follow_up("a/1")))
    child = ledger_db.claimed(ledger_db.rows(tables.task)[-1].id, owner + 1)
    ledger_db.settle(child, owner + 1, ordering(follow_up("a/1/1"), follow_up("a/1/2")))

    (status,) = ledger_db.call(batch_status.read_batches, GROUP)
    assert (status.follow_ups, status.counts["total"]) == (3, 4)
    ledger_db.ago(tables.tally.c.created_at, 1000)
    assert ledger_db.call(compact, CompactionLimits()) > 0
    assert ledger_db.call(batch_status.read_batches, GROUP)[0].follow_ups == 3
    story = ledger_db.call(task_story.story, GROUP, BATCH, "a/1/2")
    assert story is not None
    assert story.ancestors == ("a/1", "a")
    assert list(story_lines(story))[2] == "  ordered by a/1, by a"
    assert story.children == ()
    middle = ledger_db.call(task_story.story, GROUP, BATCH, "a/1")
    assert middle is not None
    assert middle.children == tuple({"id": key, "status": "pending"} for key in ("a/1/1", "a/1/2"))
    assert list(story_lines(middle))[3:6] == [
        "  ordered 2 tasks: 2 pending",
        "    a/1/1: pending",
        "    a/1/2: pending",
    ]
    assert story_json(middle)["children"][1] == {"id": "a/1/2", "status": "pending"}
    output = io.BytesIO()
    export(ledger_db.run, {ledger_db.batch().id: ALL}, docllm_line, output.write)
    lines = map(orjson.loads, output.getvalue().splitlines())
    assert {line["id"]: line.get("parent") for line in lines} == {
        "a": None,
        "a/1": "a",
        "a/1/1": "a/1",
        "a/1/2": "a/1",
    }


def test_a_child_s_child_is_one_deeper(ledger_db: LedgerDatabase) -> None:
    """The depth counts the ancestors, so that handlers cannot order each other for ever."""
    _, row, owner = parent(ledger_db)
    ledger_db.settle(row, owner, ordering(follow_up("a/1")))
    child = ledger_db.rows(tables.task)[-1]
    claimed = ledger_db.claimed(child.id, owner + 1)
    assert claimed.depth == 1

    ledger_db.settle(claimed, owner + 1, ordering(follow_up("a/1/1")))

    assert [(row.parent_id, row.depth) for row in ledger_db.rows(tables.task)[1:]] == [
        (row.task_id, 1),
        (child.id, 2),
    ]


def test_a_superseded_settle_makes_no_follow_up(ledger_db: LedgerDatabase) -> None:
    """The task was taken from the agent, and the next claim's settle makes its own, once."""
    task_id, row, owner = parent(ledger_db)
    reaped(ledger_db, task_id)
    again = ledger_db.claimed(task_id, owner + 1)

    assert ledger_db.settle(row, owner, ordering(follow_up("late"))) is Verdict.SUPERSEDED
    assert keys(ledger_db) == ["a"]

    assert ledger_db.settle(again, owner + 1, ordering(follow_up("own"))) is Verdict.SETTLED
    assert keys(ledger_db) == ["a", "own"]


def test_a_settle_that_is_run_again_makes_its_follow_ups_once(ledger_db: LedgerDatabase) -> None:
    """The answer to a commit may be lost. The second settle is an echo."""
    _, row, owner = parent(ledger_db)
    outcome = ordering(follow_up("a/1"))

    assert ledger_db.settle(row, owner, outcome) is Verdict.SETTLED
    assert ledger_db.settle(row, owner, outcome) is Verdict.SETTLED

    assert keys(ledger_db) == ["a", "a/1"]
    assert ledger_db.count(tables.outbox) == 1


def test_an_attempt_that_fails_makes_no_follow_up(ledger_db: LedgerDatabase) -> None:
    """Only the success that comes later does."""
    task_id, row, owner = parent(ledger_db)
    ledger_db.settle(row, owner, RETRY)
    ledger_db.ago(tables.task.c.due_at, 1, task_id)
    assert keys(ledger_db) == ["a"]

    ledger_db.settle(
        ledger_db.claimed(task_id, owner + 1, 1), owner + 1, ordering(follow_up("a/1"))
    )

    assert keys(ledger_db) == ["a", "a/1"]


def test_an_id_with_other_content_makes_the_parent_dead(ledger_db: LedgerDatabase) -> None:
    """None of its follow-ups is made, its cost is booked, and the reason names the id."""
    ledger_db.load("taken")
    task_id, row, owner = parent(ledger_db)

    verdicts, orders = ledger_db.settle_all(
        [settlement(row, owner, ordering(follow_up("a/1"), follow_up("taken", b"other")))]
    )

    assert verdicts == [Verdict.DIED]
    assert keys(ledger_db) == ["taken", "a"]
    assert ledger_db.status(task_id) is Status.DEAD
    (letter,) = ledger_db.rows(tables.dead_letter)
    assert (letter.error_class, letter.cost_micro) == (ErrorClass.FOLLOW_CLASH, SPENT.cost_micro)
    assert "'taken'" in letter.error_text
    assert [order.destination for order in orders] == ["dlq"]
    assert ledger_db.count(tables.task_result) == 0


def test_an_id_with_the_same_content_is_there_already(ledger_db: LedgerDatabase) -> None:
    """Two parents may order one follow-up, in one settle or in two; the first one is its parent."""
    ids = ledger_db.load("a", "b", "c")
    owner = ledger_db.agent().next_owner()
    rows = [ledger_db.claimed(task_id, owner) for task_id in ids]
    both = ordering(follow_up("shared"))

    ledger_db.settle_all([settlement(row, owner, both) for row in rows[:2]])
    assert ledger_db.settle(rows[2], owner, both) is Verdict.SETTLED

    assert keys(ledger_db) == ["a", "b", "c", "shared"]
    assert ledger_db.rows(tables.task)[-1].parent_id == ids[0]
    assert [ledger_db.status(task_id) for task_id in ids] == [Status.SUCCEEDED] * 3


def test_a_clash_within_one_settle_hits_the_second_parent(ledger_db: LedgerDatabase) -> None:
    """The follow-up that both parents share is made all the same, for the one that succeeds."""
    ids = ledger_db.load("a", "b")
    owner = ledger_db.agent().next_owner()
    rows = [ledger_db.claimed(task_id, owner) for task_id in ids]

    verdicts, _ = ledger_db.settle_all(
        [
            settlement(rows[0], owner, ordering(follow_up("x"))),
            settlement(rows[1], owner, ordering(follow_up("shared"), follow_up("x", b"other"))),
        ]
    )

    assert verdicts == [Verdict.SETTLED, Verdict.DIED]
    assert keys(ledger_db) == ["a", "b", "x"]


def test_a_cancelled_batch_takes_no_follow_up(ledger_db: LedgerDatabase) -> None:
    """The parent is cancelled with its cost, so that a replay runs it again and makes them."""
    task_id, row, owner = parent(ledger_db)
    ledger_db.cancel()

    verdict = ledger_db.settle(row, owner, ordering(follow_up("a/1")))

    assert verdict is Verdict.CANCELLED
    assert (ledger_db.status(task_id), keys(ledger_db)) == (Status.CANCELLED, ["a"])
    assert [row.cost_micro for row in ledger_db.rows(tables.task_attempt)] == [SPENT.cost_micro]


def test_a_success_without_follow_ups_is_kept_in_a_cancelled_batch(
    ledger_db: LedgerDatabase,
) -> None:
    """An answer that is paid is not thrown away."""
    task_id, row, owner = parent(ledger_db)
    ledger_db.cancel()

    assert ledger_db.settle(row, owner, SUCCEEDED) is Verdict.SETTLED

    assert ledger_db.status(task_id) is Status.SUCCEEDED


def test_more_follow_ups_than_one_statement_takes(ledger_db: LedgerDatabase) -> None:
    """The order of the ids is that in which follow-ups were ordered, so an export follows it."""
    names = [f"a/{number}" for number in range(1200, 0, -1)]
    _, row, owner = parent(ledger_db)

    ledger_db.settle(row, owner, ordering(*map(follow_up, names)))

    assert keys(ledger_db) == ["a", *names]


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
@pytest.mark.parametrize(
    ("value", "verdict"), [(b"line", Verdict.SETTLED), (b"other", Verdict.DIED)]
)
def test_a_load_that_takes_the_id_meanwhile_is_seen(
    ledger_db: LedgerDatabase, value: bytes, verdict: Verdict
) -> None:
    """The settle waits for the load's row, and then compares its content."""
    _, row, owner = parent(ledger_db)
    loaded = new_task("a/2", value)
    into, first = ledger_db.batch(BATCH), ledger_db.call(store.take_ids, 1)
    outcome = ordering(follow_up("a/1"), follow_up("a/2"))

    with ThreadPoolExecutor(1) as thread, ledger_db.database.engine.begin() as connection:
        store.accept(connection, into, [loaded], first)
        settling = thread.submit(ledger_db.settle, row, owner, outcome)
        _until(lambda: _inserts(ledger_db) or settling.done())
        assert not settling.done()
        connection.commit()
        assert settling.result(30) is verdict

    assert keys(ledger_db) == (["a", "a/2", "a/1"] if verdict is Verdict.SETTLED else ["a", "a/2"])


def _inserts(ledger_db: LedgerDatabase) -> bool:
    """Return whether the settle has read the digests, and now waits to insert its rows."""
    inserting = (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO t%'"
    )
    statement = inserting.replace("%", "%%")
    return bool(ledger_db.run(lambda c: c.exec_driver_sql(statement).scalar_one()))


def _until(is_true: Callable[[], bool]) -> None:
    given_up = Event()
    while not is_true():
        given_up.wait(0.02)
