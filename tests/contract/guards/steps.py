"""Short names for tests of guards: tasks that end in groups, and the raised guards."""

from collections.abc import Sequence

from docllm.agent.judge.guard_rule import closed_text
from docllm.agent.ports import Order, Row, Settlement, Verdict
from docllm.agent.ports.outcome import NOTHING_SPENT, Dead, Failure, Moved, Outcome
from docllm.producer.ledger import guards
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.guard import Guard
from docllm.schemas.task.waits import WaitReason, guard_key
from tests.support.ledger_database import BATCH, GROUP, ORIGIN, SPENT, LedgerDatabase

ROUTE = "route"


def exhausted(text: str = "ValueError: no", error_class: str = "HANDLER") -> Dead:
    """Return the end of a task whose attempts are used up by this error."""
    return Dead(Failure(ErrorClass[error_class], text), SPENT, Disposition.EXHAUSTED)


def refused(text: str = "400: unknown parameter: temprature") -> Dead:
    """Return the end of a task that its provider refuses for good."""
    return Dead(Failure(ErrorClass.BAD_REQUEST, text), SPENT)


def moved_for_route(route: str = ROUTE) -> Moved:
    """Return the end of a task that waits because its route is closed."""
    failure = Failure(ErrorClass.ROUTE, closed_text(route))
    return Moved(failure, NOTHING_SPENT, 3600.0, WaitReason.ROUTE, route)


def moved_for_guard(row: Row) -> Moved:
    """Return the end of a task that a guard stops."""
    key = guard_key(row.batch_id, row.type)
    failure = Failure(ErrorClass.GUARD, "it is raised")
    return Moved(failure, NOTHING_SPENT, 3600.0, WaitReason.GUARD, key)


def different(count: int) -> list[Outcome]:
    """Return ends with `count` different errors.

    The errors differ in words, because numbers do not make a different error.
    """
    return [exhausted("error " + "x" * (number + 1)) for number in range(count)]


def claimed(ledger_db: LedgerDatabase, count: int, into: str = BATCH) -> list[tuple[Row, int]]:
    """Load fresh tasks of a batch and claim them under one owner."""
    first = ledger_db.count(tables.task)
    ids = ledger_db.load(*(f"task {first + number}" for number in range(count)), into=into)
    owner = ledger_db.agent().next_owner()
    answers = ledger_db.answers([ledger_db.record(task_id) for task_id in ids], owner)
    return [(row, owner) for _, row in answers.values() if row is not None]


def settlements(
    claims: Sequence[tuple[Row, int]], outcomes: Sequence[Outcome], route: str = ROUTE
) -> list[Settlement]:
    """Return the settlements that end these claims."""
    return [
        Settlement(row=row, owner=owner, outcome=outcome, route=route, origin=ORIGIN)
        for (row, owner), outcome in zip(claims, outcomes, strict=True)
    ]


def end(
    ledger_db: LedgerDatabase, *outcomes: Outcome, into: str = BATCH, route: str = ROUTE
) -> list[Verdict]:
    """End fresh tasks with these outcomes, in one transaction."""
    return ended(ledger_db, claimed(ledger_db, len(outcomes), into), *outcomes, route=route)[0]


def ended(
    ledger_db: LedgerDatabase,
    claims: Sequence[tuple[Row, int]],
    *outcomes: Outcome,
    route: str = ROUTE,
) -> tuple[list[Verdict], list[Order]]:
    """End these claims with these outcomes, in one transaction."""
    return ledger_db.settle_all(settlements(claims, outcomes, route))


def deaths(ledger_db: LedgerDatabase) -> int:
    """Return how many tasks are dead."""
    return ledger_db.count(tables.dead_letter)


def raised(ledger_db: LedgerDatabase) -> list[Guard]:
    """Return the guards that are raised."""
    return ledger_db.run(lambda c: guards.raised(c, GROUP))


def open_all(ledger_db: LedgerDatabase) -> None:
    """Open every raised guard, as a person does."""
    for guard in raised(ledger_db):
        assert ledger_db.call(guards.open_one, guard, "somebody", "by hand")
