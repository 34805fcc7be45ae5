"""Tasks are stored and ordered in their lanes."""

from dataclasses import replace

from sqlalchemy import select

from docllm.producer.ledger import outbox, tally
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.lanes import Lane
from tests.support.ledger_database import (
    GROUP,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)

TASKS = [replace(new_task(lane.word), lane=lane) for lane in Lane]


def carried(ledger_db: LedgerDatabase) -> dict[str, str]:
    """Load a task for each lane; return the carrier of each, after its order was compared."""
    accepted = ledger_db.accept(TASKS, ledger_db.batch())
    ordered = {item.id: order.destination for order in accepted.orders for item in order.items}
    rows = {row.id: row for row in ledger_db.rows(tables.task)}
    assert {row.id: row.carrier for row in rows.values()} == ordered
    return {TASKS[position].key.decode(): ordered[key] for position, key in accepted.new.items()}


def test_a_task_is_ordered_in_its_lane(ledger_db: LedgerDatabase) -> None:
    """The row, the order and its carrier name the same lane."""
    assert carried(ledger_db) == {
        "urgent": "tasks.urgent",
        "normal": "tasks",
        "bulk": "tasks.bulk",
    }
    assert {row.task_key.decode(): Lane(row.lane).word for row in ledger_db.rows(tables.task)} == {
        lane.word: lane.word for lane in Lane
    }


def test_a_lane_of_a_newer_version_is_ordered_as_normal(ledger_db: LedgerDatabase) -> None:
    """A number that this version does not know is no reason to lose the task."""
    (task_id,) = ledger_db.load("a")
    ledger_db.set(tables.task, task_id, lane=9)

    (order,) = ledger_db.call(outbox.place_in_lanes, GROUP, [ledger_db.task(task_id)])

    assert order.destination == "tasks"
    query = select(outbox.LANE_CARRIER).where(tables.task.c.id == task_id)
    assert ledger_db.run(lambda c: c.execute(query).scalar()) == "tasks"


def test_unfinished_tasks_are_counted_for_each_tenant(ledger_db: LedgerDatabase) -> None:
    """Loaded, running and waiting tasks count, of all batches; settled ones count no more."""
    tasks = {
        "acme": [replace(new_task(f"a{number}"), tenant="acme") for number in range(3)],
        "bolt": [replace(new_task("b"), tenant="bolt")],
    }
    ids = ledger_db.accept(tasks["acme"], ledger_db.batch()).new
    ledger_db.accept(tasks["bolt"], ledger_db.batch("other batch"))
    ledger_db.accept([new_task("theirs")], ledger_db.batch("theirs", "another group"))
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(ids[0], owner), owner, SUCCEEDED)
    ledger_db.settle(ledger_db.claimed(ids[1], owner), owner, RETRY)

    assert ledger_db.call(tally.unfinished, GROUP) == {"acme": 2, "bolt": 1}

    ledger_db.settled(ids[2], SUCCEEDED)

    assert ledger_db.call(tally.unfinished, GROUP) == {"acme": 1, "bolt": 1}
