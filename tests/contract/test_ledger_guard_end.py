"""How a guard ends without a probe, and how the tasks that it moved run again.

A guard ends because nothing is left, or because a person opens it.
"""

from agent.judge.guard_rule import moved
from agent.ledger import guard_probes
from agent.maintenance.guard_keeper import MOST
from agent.outcome import Failure, Moved
from agent.ports import Row
from producer.ledger import guards as rows
from schemas.ledger import tables
from schemas.task.failures import ErrorClass
from schemas.task.states import Status
from tests.contract.ledger_guards import claimed, end, ended, exhausted, open_all, raised
from tests.contract.ledger_parts import BATCH, GROUP, LONGEST, SPENT, Books
from tests.contract.ledger_probing import Duty, fail_as_a_whole, look_at, the


async def test_a_guard_with_nothing_left_is_opened(books: Books) -> None:
    """A cancelled or finished batch has nothing that a guard could hold back."""
    end(books, exhausted())
    for row in books.rows(tables.task):
        books.set(tables.task, row.id, status=int(Status.CANCELLED))
    duty = Duty(books, answers=False)

    await duty.look()

    assert (raised(books), duty.asked) == ([], [])
    assert books.rows(tables.audit)[-1].detail.endswith("nothing of it is left")


async def test_while_a_task_runs_something_is_left(books: Books) -> None:
    """The task may fail as the others did; the guard is checked again some seconds later."""
    running = claimed(books, 1)
    end(books, exhausted())
    for row in books.rows(tables.task):
        if row.id != running[0][0].task_id:
            books.set(tables.task, row.id, status=int(Status.CANCELLED))

    await Duty(books).look()

    assert 5 < the(raised(books)).probe_due_s <= 10


async def test_an_opened_guard_calls_up_many_over_several_looks(books: Books) -> None:
    """Some pages a second are called up, so that nothing else waits for it.

    Then the guard's row is marked as done.
    """
    count = 2 * guard_probes.PAGE + 100
    ids = books.load(*(f"many {number}" for number in range(count)))
    fail_as_a_whole(books)
    owner = books.agent().next_owner()
    rows_of = [
        row
        for _, row in books.answers([books.record(one) for one in ids], owner).values()
        if row is not None
    ]
    stopped: list[tuple[Row, Moved]] = [
        (row, moved(Failure("GUARD", "why"), SPENT, LONGEST, row.task_id)) for row in rows_of
    ]
    ended(books, [(row, owner) for row, _ in stopped], *[outcome for _, outcome in stopped])
    open_all(books)
    duty = Duty(books)

    await duty.look()

    assert len(duty.called) == len(set(duty.called))
    assert set(ids) <= set(duty.called)
    assert (await look_at(books, duty)) is None
    books.ago(tables.guard.c.opened_at, 11)
    await duty.look()
    assert await look_at(books, duty) is not None
    assert books.run(lambda c: rows.read(c, GROUP)) == []


async def test_many_guards_are_looked_after_in_turn(books: Books) -> None:
    """A release that fails on hundreds of batches costs an agent few questions a second."""
    books.run(
        lambda c: c.execute(
            tables.batch.insert(),
            [{"name": f"b{number}", "group_name": GROUP} for number in range(3 * MOST)],
        )
    )
    guards = [
        {"group_name": GROUP, "batch_id": row.id, "type": "document", "cause": "exhausted"}
        for row in books.rows(tables.batch)
    ]
    books.run(lambda c: c.execute(tables.guard.insert(), guards))
    duty = Duty(books)

    left = []
    for _ in range(3):
        await duty.look()
        left.append(len(raised(books)))

    assert left == [2 * MOST, MOST, 0]


async def test_what_was_moved_for_its_route_is_not_called_up(books: Books) -> None:
    """A task that was moved for its route waits for another reason."""
    fail_as_a_whole(books)
    elsewhere = claimed(books, 1)
    ended(
        books, elsewhere, Moved(Failure(ErrorClass.ROUTE, "route x is closed"), SPENT, "1h", 3600.0)
    )
    open_all(books)
    duty = Duty(books)

    await duty.look()

    assert elsewhere[0][0].task_id not in duty.called
    assert duty.called


async def test_a_late_move_is_called_up_too(books: Books) -> None:
    """An agent that has not learned of the opening may still move a task for some seconds."""
    fail_as_a_whole(books)
    late = claimed(books, 1)
    open_all(books)
    duty = Duty(books)
    await duty.look()

    ended(books, late, moved(Failure("GUARD", "why"), SPENT, LONGEST, 1))
    await duty.look()

    assert late[0][0].task_id in duty.called


async def test_guards_of_the_past_are_forgotten(books: Books) -> None:
    """Ten minutes after its last task was called up, a guard decides nothing any more.

    A raised guard stays.
    """
    fail_as_a_whole(books)
    ended(books, claimed(books, 1, into="healthy"), exhausted())
    assert books.count(tables.guard) == 2
    books.ago(tables.guard.c.called_at, 601)
    books.set(tables.guard, the(raised(books)).id, called_at=None)

    books.run(lambda c: guard_probes.forget(c, GROUP))

    assert [one.batch for one in raised(books)] == [BATCH]
    assert books.count(tables.guard) == 1
