"""Fills a ledger with any number of tasks by set-based SQL: 20 batches of one group.

Whatever the number of tasks, as many wait, run, reached the cap of replays, are late and died in
the last hour. So work that costs more in a larger ledger reads what it does not need.

Tested by tests/contract/database/test_scale.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    Subquery,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)

from docllm.producer.ledger.tally import SPENT
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.sql import NEVER_TIME, UtcTime, utc_after, utc_now
from docllm.schemas.ledger.tables import (
    agent,
    batch,
    dead_letter,
    failure_group,
    metadata,
    tally,
    tally_sum,
    task,
    task_attempt,
    task_input,
)
from docllm.schemas.ledger.tables import ledger as ledger_row
from docllm.schemas.task.failures import AttemptOutcome, Disposition, ErrorClass, TallyOutcome
from docllm.schemas.task.states import Status

GROUP, TYPE = "group", "document"
BATCHES, CANCELLED_BATCH = 20, 2
OPEN = 2000  # tasks at the end of the last batch that wait or run
ERRORS = 25  # different fingerprints
RECENT, CAPPED, LATE = 20, 20, 20  # dead letters
CAP = 3
_CHUNK = 1_000_000  # rows of one statement
_FIRST_KEY = 1_000_000_000
_DIGIT = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))


@dataclass(frozen=True, slots=True)
class Size:
    """How many final tasks a ledger has; one in `dead_every` of them is dead."""

    tasks: int
    dead_every: int

    @property
    def dead(self) -> int:
        """Return how many tasks are dead."""
        return self.tasks // self.dead_every


def batch_name(number: int) -> str:
    """Return the name of a batch."""
    return f"b{number}"


def key_of(task_id: int) -> bytes:
    """Return the key of a task."""
    return str(_FIRST_KEY + task_id).encode()


def fingerprint_of(number: int) -> bytes:
    """Return one of the ERRORS fingerprints."""
    return bytes([17 + number]) * 16


def fill(database: Database, size: Size) -> None:
    """Empty the ledger, then fill it."""
    for table in metadata.tables.values():
        if table is not ledger_row:
            database.run(lambda c, table=table: c.execute(delete(table)))  # type: ignore[misc]
    database.run(_write_batches)
    for first, rows in _chunks(1, size.tasks):
        database.run(lambda c, first=first, rows=rows: _write_final(c, size, first, rows))  # type: ignore[misc]
    database.run(lambda c: _write_open(c, size.tasks + 1))
    for first, rows in _chunks(1, size.dead):
        database.run(lambda c, first=first, rows=rows: _write_dead(c, size, first, rows))  # type: ignore[misc]
    database.run(_write_inputs)
    database.run(_write_attempts)
    database.run(_write_counts)
    if not database.sqlite:
        database.run_singly(
            lambda c: c.execute(text("ANALYZE TABLE task, batch, dead_letter, task_attempt"))
        )


def _chunks(first: int, rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, _CHUNK):
        yield first + start, min(_CHUNK, rows - start)


def numbered(first: int, rows: int) -> Subquery:
    """Return `rows` numbers from `first` on, as the column n."""
    places = range(len(str(rows)))
    offset = " + ".join(f"{10**place} * d{place}.d" for place in places)
    digits = " CROSS JOIN ".join(f"({_DIGIT}) AS d{place}" for place in places)
    sql = f"SELECT {first} + {offset} AS n FROM {digits} WHERE {offset} < {rows}"  # noqa: S608
    return text(sql).columns(Column("n", Integer)).subquery("numbers")


def _write_batches(connection: Connection) -> None:
    rows = [
        {"id": number, "name": batch_name(number), "group_name": GROUP}
        for number in range(1, BATCHES + 1)
    ]
    connection.execute(insert(batch), rows)
    cancelled = update(batch).where(batch.c.id == CANCELLED_BATCH)
    connection.execute(cancelled.values(cancelled_at=utc_now(), closed_at=utc_now()))
    connection.execute(insert(agent), {"id": 1, "name": "agent", "group_name": GROUP})


def key_sql(connection: Connection, number: str) -> Any:
    """Return the key of a task as SQL; SQLite compares bytes and text as different."""
    digits = f"CAST({_FIRST_KEY} + {number} AS CHAR)"
    return literal_column(
        f"CAST({digits} AS BLOB)" if connection.dialect.name == "sqlite" else digits
    )


def _batch_of(number: Any, size: Size) -> Any:
    per_batch = size.tasks // BATCHES
    return (number - 1 - (number - 1) % per_batch) / literal_column(str(per_batch)) + 1


def _write_final(connection: Connection, size: Size, first: int, rows: int) -> None:
    numbers = numbered(first, rows)
    number = numbers.c.n
    is_dead = number % size.dead_every == 0
    columns = {
        "id": number,
        "batch_id": _batch_of(number, size),
        "task_key": key_sql(connection, "numbers.n"),
        "digest": literal(bytes(16)),
        "type": literal(TYPE),
        "status": case((is_dead, int(Status.DEAD)), else_=int(Status.SUCCEEDED)),
        "due_at": literal(NEVER_TIME, UtcTime),
    }
    copy(connection, task, columns)


def _write_open(connection: Connection, first: int) -> None:
    numbers = numbered(first, OPEN)
    place = numbers.c.n % 20
    status = case(
        (place == 0, int(Status.PROCESSING)),
        (place < 5, int(Status.RETRYING)),  # noqa: PLR2004
        else_=int(Status.PENDING),
    )
    columns = {
        "id": numbers.c.n,
        "batch_id": literal(BATCHES),
        "task_key": key_sql(connection, "numbers.n"),
        "digest": literal(bytes(16)),
        "type": literal(TYPE),
        "status": status,
        "due_at": case((status == int(Status.PENDING), utc_after(-60)), else_=utc_after(3600)),
        "owner": case((status == int(Status.PROCESSING), 1 << 32), else_=0),
        "fence": case((status == int(Status.RETRYING), 1), else_=0),
    }
    copy(connection, task, columns)


def _write_dead(connection: Connection, size: Size, first: int, rows: int) -> None:
    numbers = numbered(first, rows)
    place = numbers.c.n
    fingerprints = " UNION ALL ".join(
        f"SELECT {number} AS i, X'{fingerprint_of(number).hex()}' AS f" for number in range(ERRORS)
    )
    prints = text(fingerprints).columns(Column("i", Integer), Column("f")).subquery("prints")
    is_late = place.between(CAPPED + 1, CAPPED + LATE)
    columns = {
        "task_id": place * size.dead_every,
        "batch_id": _batch_of(place * size.dead_every, size),
        "fence": literal(0),
        "type": literal(TYPE),
        "disposition": literal(Disposition.PERMANENT.value),
        "error_class": literal(ErrorClass.BAD_REQUEST.value),
        "error_text": literal("it answered 400"),
        "fingerprint": prints.c.f,
        "died_at": case((place > size.dead - RECENT, utc_after(-60)), else_=utc_after(-172_800)),
        "replays": case((place <= CAPPED, CAP), else_=0),
        "expires_at": case((is_late, utc_after(-3600)), else_=literal(NEVER_TIME, UtcTime)),
        "attempts": literal(1),
        "tokens_in": literal(10),
        "tokens_out": literal(5),
        "cost_micro": literal(300),
        "unpriced": literal(0),
    }
    source = select(*(value.label(name) for name, value in columns.items())).join(
        prints, prints.c.i == place % ERRORS
    )
    connection.execute(insert(dead_letter).from_select(list(columns), source))


def _write_inputs(connection: Connection) -> None:
    """Write the inputs of the dead tasks, without which none could be replayed."""
    columns = {"task_id": dead_letter.c.task_id, "body": literal(b"{}")}
    copy(connection, task_input, columns)


def _write_attempts(connection: Connection) -> None:
    """Write the last attempt of each task that is dead, or retrying because a guard moved it."""
    is_dead = task.c.status == int(Status.DEAD)
    columns = {
        "task_id": task.c.id,
        "attempt": literal(1),
        "fence": case((is_dead, task.c.fence), else_=task.c.fence - 1),
        "outcome": case((is_dead, AttemptOutcome.DEAD), else_=AttemptOutcome.MOVED),
        "error_class": literal(ErrorClass.BAD_REQUEST.value),
        "error_text": literal("it answered 400"),
    }
    source = select(*(value.label(name) for name, value in columns.items()))
    source = source.where(task.c.status.in_([int(Status.DEAD), int(Status.RETRYING)]))
    connection.execute(insert(task_attempt).from_select(list(columns), source))


def copy(connection: Connection, table: Any, columns: dict[str, Any]) -> None:
    """Insert a row for each row that the expressions of `columns` are selected from."""
    source = select(*(value.label(name) for name, value in columns.items()))
    connection.execute(insert(table).from_select(list(columns), source))


def _write_counts(connection: Connection) -> None:
    """Write the roll-ups, and for the recent dead letters rows that are not rolled up yet."""
    is_recent = dead_letter.c.died_at > utc_after(-3600)
    ended = {
        "batch_id": task.c.batch_id,
        "type": task.c.type,
        "route": literal(""),
        "model": literal(""),
        "tenant": literal(""),
        "outcome": literal("ended"),
        "disposition": literal(""),
        "delta": func.count(),
        "entered": func.count(),
    }
    of_state = ended | {"state": task.c.status}
    of_load = ended | {
        "state": literal(int(Status.PENDING)),
        "outcome": literal(TallyOutcome.LOADED.value),
    }
    for columns, keys in ((of_state, [task.c.status]), (of_load, [])):
        source = select(*(value.label(name) for name, value in columns.items()))
        source = source.group_by(task.c.batch_id, task.c.type, *keys)
        connection.execute(insert(tally_sum).from_select(list(columns), source))
    parts = ("batch_id", "type", "tenant", "route", "disposition", "fingerprint", "error_class")
    sums = ("attempts", *SPENT)
    group = {name: dead_letter.c[name] for name in parts} | {
        "dead": func.count(),
        "entered": func.count(),
        "first_at": func.min(dead_letter.c.died_at),
        "last_at": func.max(dead_letter.c.died_at),
        **{name: func.sum(dead_letter.c[name]) for name in sums},
    }
    source = select(*(value.label(name) for name, value in group.items()))
    source = source.where(~is_recent).group_by(*(dead_letter.c[name] for name in parts))
    connection.execute(insert(failure_group).from_select(list(group), source))
    death = {name: dead_letter.c[name] for name in parts[:-1]} | {
        "outcome": dead_letter.c.error_class,
        "state": literal(int(Status.DEAD)),
        "delta": literal(1),
        **{f"dead_{name}": dead_letter.c[name] for name in sums},
    }
    tail = select(*(value.label(name) for name, value in death.items())).where(is_recent)
    connection.execute(insert(tally).from_select(list(death), tail))
