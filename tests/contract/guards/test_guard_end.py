"""How a guard ends without a look, and how the tasks that it moved run again.

A guard ends because nothing is left, or because a person opens it.
"""

from docllm.agent.ledger.claims import waking
from docllm.agent.ledger.guards import looks
from docllm.agent.maintenance.waits.guard_keeper import MAX_GUARDS
from docllm.producer.ledger import guards
from docllm.schemas.ledger import tables
from docllm.schemas.task.states import Status
from tests.contract.guards.duty import ObservedKeeper, fail_as_a_whole, look_at, the
from tests.contract.guards.steps import (
    claimed,
    end,
    ended,
    exhausted,
    moved_for_guard,
    moved_for_route,
    open_all,
    raised,
)
from tests.support.ledger_database import BATCH, GROUP, LedgerDatabase


async def test_a_guard_with_nothing_left_is_opened(ledger_db: LedgerDatabase) -> None:
    """A cancelled or finished batch has nothing that a guard could hold back."""
    end(ledger_db, exhausted())
    for row in ledger_db.rows(tables.task):
        ledger_db.set(tables.task, row.id, status=int(Status.CANCELLED))
    keeper = ObservedKeeper(ledger_db, answers=False)

    await keeper.keep_once()

    assert (raised(ledger_db), keeper.asked) == ([], [])
    assert ledger_db.rows(tables.audit)[-1].detail.endswith("none of its tasks is left")


async def test_while_a_task_runs_something_is_left(ledger_db: LedgerDatabase) -> None:
    """The task may fail as the others did; the guard is checked again some seconds later."""
    running = claimed(ledger_db, 1)
    end(ledger_db, exhausted())
    for row in ledger_db.rows(tables.task):
        if row.id != running[0][0].task_id:
            ledger_db.set(tables.task, row.id, status=int(Status.CANCELLED))

    await ObservedKeeper(ledger_db).keep_once()

    assert 5 < the(raised(ledger_db)).next_look_in_s <= 10


async def test_an_opened_guard_calls_up_many_over_several_looks(ledger_db: LedgerDatabase) -> None:
    """Some pages a second are called up, so that nothing else waits for it.

    Then the guard's row is marked as done.
    """
    count = 2 * waking.PAGE + 100
    ids = ledger_db.load(*(f"many {number}" for number in range(count)))
    fail_as_a_whole(ledger_db)
    owner = ledger_db.agent().next_owner()
    rows_of = [
        row
        for _, row in ledger_db.answers(
            [ledger_db.record(task_id) for task_id in ids], owner
        ).values()
        if row is not None
    ]
    ended(ledger_db, [(row, owner) for row in rows_of], *map(moved_for_guard, rows_of))
    open_all(ledger_db)
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()

    assert len(keeper.called) == len(set(keeper.called))
    assert set(ids) <= set(keeper.called)
    assert (await look_at(ledger_db, keeper)) is None
    ledger_db.ago(tables.guard.c.opened_at, 11)
    await keeper.keep_once()
    assert await look_at(ledger_db, keeper) is not None
    assert ledger_db.run(lambda c: guards.read_guards(c, GROUP)) == []


async def test_many_guards_are_looked_after_in_turn(ledger_db: LedgerDatabase) -> None:
    """A release that fails on hundreds of batches costs an agent few questions a second."""
    ledger_db.run(
        lambda c: c.execute(
            tables.batch.insert(),
            [{"name": f"b{number}", "group_name": GROUP} for number in range(3 * MAX_GUARDS)],
        )
    )
    raised_guards = [
        {"group_name": GROUP, "batch_id": row.id, "type": "document", "cause": "exhausted"}
        for row in ledger_db.rows(tables.batch)
    ]
    ledger_db.run(lambda c: c.execute(tables.guard.insert(), raised_guards))
    keeper = ObservedKeeper(ledger_db)

    left = []
    for _ in range(3):
        await keeper.keep_once()
        left.append(len(raised(ledger_db)))

    assert left == [2 * MAX_GUARDS, MAX_GUARDS, 0]


async def test_tasks_that_were_moved_for_their_route_are_not_called_up(
    ledger_db: LedgerDatabase,
) -> None:
    """A task that was moved for its route waits for another reason."""
    fail_as_a_whole(ledger_db)
    elsewhere = claimed(ledger_db, 1)
    ended(
        ledger_db,
        elsewhere,
        moved_for_route("x"),
    )
    open_all(ledger_db)
    keeper = ObservedKeeper(ledger_db)

    await keeper.keep_once()

    assert elsewhere[0][0].task_id not in keeper.called
    assert keeper.called


async def test_a_late_move_is_called_up_too(ledger_db: LedgerDatabase) -> None:
    """An agent that has not learned of the opening may still move a task for some seconds."""
    fail_as_a_whole(ledger_db)
    late = claimed(ledger_db, 1)
    open_all(ledger_db)
    keeper = ObservedKeeper(ledger_db)
    await keeper.keep_once()

    ended(ledger_db, late, moved_for_guard(late[0][0]))
    await keeper.keep_once()

    assert late[0][0].task_id in keeper.called


async def test_guards_of_the_past_are_forgotten(ledger_db: LedgerDatabase) -> None:
    """Ten minutes after its last task was called up, a guard decides nothing any more.

    A raised guard stays.
    """
    fail_as_a_whole(ledger_db)
    ended(ledger_db, claimed(ledger_db, 1, into="healthy"), exhausted())
    assert ledger_db.count(tables.guard) == 2
    ledger_db.ago(tables.guard.c.called_at, 601)
    ledger_db.set(tables.guard, the(raised(ledger_db)).id, called_at=None)

    ledger_db.run(lambda c: looks.forget(c, GROUP))

    assert [guard.batch for guard in raised(ledger_db)] == [BATCH]
    assert ledger_db.count(tables.guard) == 1
