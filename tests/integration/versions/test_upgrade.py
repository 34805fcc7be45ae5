"""`migrate` brings the ledger of an older version, with work in it, to the present schema."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy import table as sql_table
from sqlalchemy.exc import DBAPIError

from docllm.producer.ledger import replay_progress, tally
from docllm.producer.ledger.dead_letters import error_groups
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.ledger.status import batch_status
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.migrations import facts
from docllm.schemas.runtime import crash
from docllm.schemas.task.states import Status
from tests.contract.support import ledger_dead
from tests.integration.versions import older_ledger
from tests.integration.versions.older_ledger import BEFORE_FACTS, DEAD, FIRST, TASKS
from tests.support.ledger_database import GROUP, LedgerDatabase

_numbers = count(1)
ROLL_UPS = ("tally_sum", "failure_group", "dead_letter", "task", "tally")
ENDS = {Status.DEAD, Status.CANCELLED}
Rows = list[dict[str, Any]]


@pytest.fixture(params=["sqlite", "mariadb", "mysql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Returns the address of a new and empty database at each call."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path / f'ledger{next(_numbers)}.db'}"
    server = request.getfixturevalue(f"{request.param}_server")
    return lambda: str(
        server.create_database(f"upgrade{next(_numbers)}").replace("mysql://", "mysql+pymysql://")
    )


@pytest.fixture
def made(address: Callable[[], str]) -> Iterator[Callable[[str], Database]]:
    """Makes ledgers of older versions."""
    databases: list[Database] = []

    def make(revision: str) -> Database:
        databases.append(Database(address(), timeout_s=60))
        with databases[-1].engine.connect() as connection:
            older_ledger.make(connection, GROUP, revision)
        return databases[-1]

    yield make
    for database in databases:
        database.close()


def rows(database: Database, table: str) -> Rows:
    """Return the rows of a table."""
    query = select(text("*")).select_from(sql_table(table))
    return [dict(row) for row in database.run(lambda c: c.execute(query).mappings().all())]


def contents(database: Database) -> dict[str, Rows]:
    """Return what the migration fills, in one order."""
    return {table: sorted(rows(database, table), key=repr) for table in ROLL_UPS}


def numbers(database: Database, *columns: str) -> dict[tuple[Any, ...], int]:
    """Return how many tasks are in each final state, by these columns of all counts."""
    ends = tally.counts(lambda column: [column["state"].in_(sorted(ENDS))])
    keys = [ends.c[name] for name in ("state", *columns)]
    query = select(*keys, func.sum(ends.c.delta)).group_by(*keys)
    return {
        tuple(row[:-1]): int(row[-1])
        for row in database.run(lambda c: c.execute(query).all())
        if row[-1]
    }


def migrate_by_hand(database: Database, order: str = "") -> subprocess.CompletedProcess[str]:
    """Run `migrate` in a process of its own, which kills itself at the point of `order`."""
    url = database.engine.url.render_as_string(hide_password=False)
    program = f"""
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.migrations import facts
from docllm.schemas.ledger.migrations import migrate
print(migrate(Database({url!r}, timeout_s=None))[1])
"""
    environ = os.environ | ({crash.VARIABLE: order} if order else {})
    return subprocess.run(
        [sys.executable, "-c", program], env=environ, check=False, capture_output=True, text=True
    )


def test_an_unfinished_replay_of_an_older_ledger_knows_how_far_it_is(
    made: Callable[[str], Database],
) -> None:
    """Agents go on with it; its counts come from its items."""
    database = made(BEFORE_FACTS)
    selection = ReplayRequest(Selection()).as_text()
    times = "created_at, stored_at, next_at"
    run = text(
        f"INSERT INTO replay_run (id, group_name, actor, selection, {times}) "  # noqa: S608
        "VALUES (7, :group, 'ann', :selection, :at, :at, :at)"
    )
    item = text(
        "INSERT INTO replay_item (run_id, kind, item_id, fence, state) "
        "VALUES (7, :kind, :id, 0, :state)"
    )
    values = {"group": GROUP, "selection": selection, "at": "2026-01-31 00:00:00.000000"}
    states = [0, 0, 0, 1, 1, 2, 3]
    items = [{"kind": 0, "id": 100 + n, "state": state} for n, state in enumerate(states)]
    database.run(lambda c: (c.execute(run, values), c.execute(item, items)))

    migrations.migrate(database)

    (unfinished,) = [
        found
        for found in database.run(lambda c: replay_progress.unfinished(c, GROUP))
        if found.id == 7
    ]
    assert (unfinished.done, unfinished.total) == (4, 7)
    assert unfinished.counts == dict(zip(ItemState, (3, 2, 1, 1), strict=True))


@pytest.mark.parametrize("revision", [FIRST, BEFORE_FACTS])
def test_every_row_of_an_older_ledger_is_kept(
    made: Callable[[str], Database], revision: str
) -> None:
    """No task, attempt, result, dead letter, order or batch changes in its old columns."""
    database = made(revision)
    kept = [name for name in tables.metadata.tables if name not in ("ledger", "tally")]
    before = {name: rows(database, name) for name in kept if _exists(database, name)}

    assert migrations.migrate(database) == (revision, migrations.own_revision())

    for name, old_rows in before.items():
        new_rows = rows(database, name)
        assert [
            {column: new[column] for column in old}
            for old, new in zip(old_rows, new_rows, strict=True)
        ] == old_rows, name
    assert [row["ledger_id"] for row in rows(database, "ledger")] == [older_ledger.LEDGER_ID]
    assert rows(database, "ledger")[0]["compatible_from"] == migrations.COMPATIBLE_FROM


def test_the_lines_of_older_dead_letters_are_known(made: Callable[[str], Database]) -> None:
    """A line that a tool writes back after the upgrade is recognized, also if it died before."""
    database = made(BEFORE_FACTS)

    migrations.migrate(database)

    digests = {row["id"]: row["digest"] for row in rows(database, "task")}
    lines = {
        (row["group_name"], row["digest"]): row["task_id"] for row in rows(database, "dead_line")
    }
    assert lines == {(GROUP, digests[task.id]): task.id for task in DEAD}


def _exists(database: Database, table: str) -> bool:
    return database.run(lambda c: migrations._has_column(c, table, _first_column(table)))


def _first_column(table: str) -> str:
    return next(iter(tables.metadata.tables[table].columns)).name


@pytest.mark.parametrize("revision", [FIRST, BEFORE_FACTS])
def test_the_screens_show_an_older_ledger_as_it_is(
    made: Callable[[str], Database], revision: str
) -> None:
    """`status` counts each task in its state; `dead list` has each group with all its attempts."""
    database = made(revision)

    migrations.migrate(database)

    names = {row["id"]: row["name"] for row in rows(database, "batch")}
    for shown in database.run(lambda c: batch_status.read_batches(c, GROUP)):
        states = Counter(task.status for task in TASKS if names[task.batch] == shown.name)
        assert shown.counts == {
            "total": states.total(),
            **{status.name.lower(): states[status] for status in Status},
        }, shown.name
        assert round(shown.cost * 1_000_000) == sum(
            100 * task.id
            for task in TASKS
            if names[task.batch] == shown.name and task.status in {Status.SUCCEEDED, Status.DEAD}
        )
    groups = database.run(lambda c: error_groups.listed(c, GROUP, Selection()))
    expected: dict[tuple[str, str], list[int]] = {}
    for task in DEAD:
        sums = expected.setdefault((task.error, task.disposition), [0, 0, 0, 0, 0])
        spent = (1, task.attempt, *(task.attempt * task.id * by for by in (10, 1, 100)))
        sums[:] = [old + new for old, new in zip(sums, spent, strict=True)]
    assert {
        (group.example.error_class, group.disposition): [
            group.count,
            group.spent.attempts,
            group.spent.tokens_in,
            group.spent.tokens_out,
            group.spent.cost_micro,
        ]
        for group in groups
    } == expected


@pytest.mark.parametrize("revision", [FIRST, BEFORE_FACTS])
def test_the_roll_ups_have_what_the_rows_have(
    made: Callable[[str], Database], revision: str
) -> None:
    """Dead and cancelled tasks are counted under the names that a replay will take them from."""
    database = made(revision)

    migrations.migrate(database)

    columns = ("batch_id", "type", "tenant", "route", "outcome")
    assert numbers(database, *columns) == Counter(
        (
            int(task.status),
            task.batch,
            task.type,
            task.tenant,
            task.route,
            task.error or "cancelled",
        )
        for task in TASKS
        if task.status in ENDS
    )
    assert {
        row["task_id"]: (row["batch_id"], row["tenant"], row["route"], row["attempts"])
        for row in rows(database, "dead_letter")
    } == {task.id: (task.batch, task.tenant, task.route, task.attempt) for task in DEAD}
    failures = Counter(
        {
            (row["batch_id"], row["tenant"], row["route"], row["error_class"]): row["dead"]
            for row in rows(database, "failure_group")
        }
    )
    assert failures == Counter((task.batch, task.tenant, task.route, task.error) for task in DEAD)
    entered = sum(row["entered"] for row in rows(database, "tally_sum"))
    replayed = len(DEAD) + 1 if revision == BEFORE_FACTS else 0  # and one cancelled
    finals = sum(task.status in {*ENDS, Status.SUCCEEDED} for task in TASKS)
    assert entered == len(TASKS) + 1 + finals + replayed  # one waits for its next attempt


@pytest.mark.parametrize("revision", [FIRST, BEFORE_FACTS])
def test_replays_of_old_ends_leave_no_negative_sums(
    made: Callable[[str], Database], revision: str
) -> None:
    """Each dead and each cancelled task is replayed, and then no sum of an end is left."""
    ledger_db = LedgerDatabase(made_and_migrated(made, revision))

    ledger_dead.replayed(ledger_db)
    ledger_dead.replayed(ledger_db, cancelled=True)
    closed = {task.id for task in DEAD if task.batch == older_ledger.CANCELLED}
    ledger_dead.replayed(ledger_db)  # those of the batch that is open again

    assert closed
    assert ledger_db.count(tables.dead_letter) == 0
    for column in ("batch_id", "route", "model", "tenant", "disposition", "outcome"):
        assert numbers(ledger_db.database, column) == {}, column


def made_and_migrated(made: Callable[[str], Database], revision: str) -> Database:
    database = made(revision)
    migrations.migrate(database)
    return database


def test_tasks_whose_rows_were_deleted_stay_counted(made: Callable[[str], Database]) -> None:
    """A person may delete the rows of an exported batch; `status` shows its numbers still."""
    database = made(BEFORE_FACTS)
    delete = "DELETE FROM {} WHERE {} IN (SELECT id FROM task WHERE batch_id IN (2, 3))"
    database.run(lambda c: c.execute(text(delete.format("dead_letter", "task_id"))))
    database.run(lambda c: c.execute(text("DELETE FROM task WHERE batch_id IN (2, 3)")))

    migrations.migrate(database)

    assert numbers(database, "batch_id") == Counter(
        (int(task.status), task.batch) for task in TASKS if task.status in ENDS
    )


def test_a_batch_has_so_many_groups_of_failures_and_one_for_the_rest(
    made: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest groups keep their fingerprints; the rest share one, and no death is lost."""
    monkeypatch.setattr("docllm.schemas.ledger.migrations.facts._MAX_GROUPS", 1)

    database = made_and_migrated(made, BEFORE_FACTS)

    groups = rows(database, "failure_group")
    for batch in {task.batch for task in DEAD}:
        batch_rows = [row for row in groups if row["batch_id"] == batch]
        assert sum(row["dead"] for row in batch_rows) == sum(task.batch == batch for task in DEAD)
        assert sum(row["fingerprint"] != b"\xff" * 16 for row in batch_rows) == 1
    assert {row["sample_task"] for row in groups} <= {task.id for task in DEAD}


@pytest.mark.parametrize("step", [1, 20, 45, 46, 57, 58, 59, 60])
def test_a_killed_migration_is_run_again(made: Callable[[str], Database], step: int) -> None:
    """Killed between any two steps, it leaves a ledger that the next one completes."""
    undisturbed, killed = made(BEFORE_FACTS), made(BEFORE_FACTS)
    migrations.migrate(undisturbed)

    ended = migrate_by_hand(killed, f"migrate.step_taken:{step}")
    assert ended.returncode == -signal.SIGKILL, ended
    migrations.migrate(killed)

    assert contents(killed) == contents(undisturbed)


def test_no_count_is_written_while_the_counts_are_moved(
    made: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that another program wrote then would be deleted without being summed up."""
    database = made_and_migrated(made, BEFORE_FACTS)
    if database.sqlite:  # it has one writer at a time
        return
    count_row = {"batch_id": 1, "state": int(Status.SUCCEEDED), "fingerprint": bytes(16)}
    write = tables.tally.insert().values({**count_row, "delta": 1})
    failure_groups = facts._failure_groups

    def disturbed() -> str:  # called after the counts were read and before they are deleted
        with database.engine.connect() as writer:
            with pytest.raises(DBAPIError, match="Lock wait timeout"):
                writer.execute(write)
            writer.rollback()
        return failure_groups()

    database.run(lambda c: c.execute(write))
    monkeypatch.setattr(facts, "_failure_groups", disturbed)
    with database.engine.connect() as mover:
        facts.sum_up(mover)

    database.run(lambda c: c.execute(write))
    assert [row["delta"] for row in rows(database, "tally")] == [1]
