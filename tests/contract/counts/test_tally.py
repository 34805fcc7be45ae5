"""A reader of counts sees each count once, whether it is rolled up or still a row of the tally."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select

from docllm.producer.ledger import tally
from docllm.schemas.ledger import tables
from docllm.schemas.task.failures import Disposition, ErrorClass, TallyOutcome
from docllm.schemas.task.states import Status
from tests.support.ledger_database import LedgerDatabase

NOON = datetime(2026, 7, 1, 12)  # noqa: DTZ001 - the database's times are UTC without a zone
PRINT = b"f" * 16
LETTER = {
    "batch_id": 7, "type": "chat", "route": "gpu", "error_class": ErrorClass.SERVER,
    "fingerprint": PRINT, "disposition": Disposition.PERMANENT, "model": "llama", "tenant": "acme",
    "attempts": 3, "tokens_in": 30, "tokens_out": 15, "cost_micro": 900, "unpriced": 2,
}  # fmt: skip
COSTS = {"tokens_in": 10, "tokens_out": 5, "cost_micro": 300}
DIED = tally.died(LETTER, 2, costs=COSTS | {"tokens_cached": 4, "unsure_micro": 30})
REPLAYED = tally.died(LETTER, -1)
LOADED = tally.TallyChange(
    batch_id=7,
    type="chat",
    route="",
    state=Status.PENDING,
    outcome=TallyOutcome.LOADED,
    delta=4,
)


def write(ledger_db: LedgerDatabase, *changes: tally.TallyChange) -> None:
    """Write each change as a row of its own."""
    for change in changes:
        ledger_db.call(tally.write, [change])


def roll_up(ledger_db: LedgerDatabase) -> None:
    """Write a death, and its group, as compaction does."""
    of_death = {
        "batch_id": 7,
        "type": "chat",
        "route": "gpu",
        "tenant": "acme",
        "disposition": Disposition.PERMANENT,
        "entered": 1,
    }
    count = {
        "model": "llama",
        "state": int(Status.DEAD),
        "outcome": ErrorClass.SERVER,
        "delta": 1,
        "newest_at": NOON,
    }
    group = {
        "fingerprint": PRINT,
        "error_class": ErrorClass.SERVER,
        "dead": 1,
        "first_at": NOON,
        "last_at": NOON,
        "sample_task": 40,
        "attempts": 3,
    }
    ledger_db.run(lambda c: c.execute(insert(tables.tally_sum), of_death | count))
    ledger_db.run(lambda c: c.execute(insert(tables.failure_group), of_death | group))


def sums(ledger_db: LedgerDatabase, source: Any, *names: str) -> tuple[int, ...]:
    query = select(*(func.sum(source.c[name]) for name in names))
    return tuple(int(value or 0) for value in ledger_db.run(lambda c: c.execute(query).one()))


def test_counts_are_the_roll_up_and_the_tail(ledger_db: LedgerDatabase) -> None:
    """A replay lowers how many are dead, and not how many have died."""
    roll_up(ledger_db)
    write(ledger_db, DIED, REPLAYED)

    counts = tally.counts(lambda column: [column["batch_id"] == 7, column["tenant"] == "acme"])

    assert sums(ledger_db, counts, "delta", "entered", "tokens_in") == (2, 3, 10)
    assert sums(ledger_db, counts, "tokens_out", "tokens_cached", "cost_micro", "unsure_micro") == (
        5,
        4,
        300,
        30,
    )


def test_conditions_hold_for_both_parts(ledger_db: LedgerDatabase) -> None:
    """A count of another batch is in neither part."""
    roll_up(ledger_db)
    write(ledger_db, DIED)

    assert sums(ledger_db, tally.counts(lambda column: [column["batch_id"] == 8]), "delta") == (0,)


def test_a_failure_group_is_the_roll_up_and_the_tail(ledger_db: LedgerDatabase) -> None:
    """A group's costs are those of all attempts of the dead tasks; loads are no failures."""
    roll_up(ledger_db)
    write(ledger_db, DIED, REPLAYED, LOADED)

    group = tally.failures(lambda column: [column["batch_id"] == 7])

    assert sums(ledger_db, group, "dead", "entered", "attempts", "sample_task") == (2, 3, 6, 40)
    assert sums(ledger_db, group, "tokens_in", "tokens_out", "cost_micro") == (30, 15, 900)


def test_times_are_of_tasks_that_entered(ledger_db: LedgerDatabase) -> None:
    """A replay is no newer failure."""
    roll_up(ledger_db)
    write(ledger_db, REPLAYED)
    counts = tally.counts(lambda column: [column["batch_id"] == 7])
    group = tally.failures(lambda column: [column["batch_id"] == 7])

    newest = select(func.max(counts.c.newest_at))
    ends = select(func.min(group.c.first_at), func.max(group.c.last_at))

    assert ledger_db.run(lambda c: c.execute(newest).scalar()) == NOON
    assert ledger_db.run(lambda c: c.execute(ends).one()) == (NOON, NOON)


def test_loaded_counts_what_was_rolled_up(ledger_db: LedgerDatabase) -> None:
    """A load that goes on after days says how many tasks the batch had before."""
    row = {"batch_id": 7, "type": "chat", "route": "", "model": "", "tenant": ""}
    row |= {"state": int(Status.PENDING), "outcome": TallyOutcome.LOADED, "disposition": ""}
    ledger_db.run(lambda c: c.execute(insert(tables.tally_sum), row | {"delta": 30, "entered": 30}))
    write(ledger_db, LOADED)

    assert ledger_db.call(tally.loaded, 7) == 34
