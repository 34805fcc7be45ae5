"""Frequent queries of agents read as many rows in a large ledger as in a small one.

Servers choose a plan by statistics, which may be far off. Some tests make them say that 20 batches
are thousands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, event, func, insert, literal, select, text, update

from bench import reads
from bench.reads import Work
from docllm.agent.ledger import hook_runs, open_work
from docllm.agent.ledger.leases import lock_rows
from docllm.agent.ledger.recovery import reaping, sweeping
from docllm.agent.ports.lock_table import Claimant, LockChange
from docllm.producer.ledger import joins, quarantine, replay_progress, task_locks
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.ledger.status import snapshot
from docllm.producer.replay import runs
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.sql import NEVER_TIME, utc_after, utc_now
from docllm.schemas.ledger.tables import (
    batch,
    hook,
    lock_wait,
    outbox,
    replay_item,
    replay_run,
    resource_lock,
    task,
)
from docllm.schemas.task.hooks import HookEvent, HookState
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import OPEN, WAITING, Status
from tests.support.ledger_database import GROUP, KINDS, driven

SERVERS = ("mariadb", "mysql")
BATCHES, SMALL, LARGE, WAIT = 20, 250, 1_000, 240
COVERAGE = [sweeping.StatusTopics(status, ("tasks",), None) for status in WAITING]
REQUEST = ReplayRequest(Selection()).as_text()
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of 20 batches, the last of which has waiting tasks.

    `name` is the name of a server's database.
    """

    database: Database
    name: str

    def fill(self, per_batch: int, waiting: int = WAIT) -> None:
        """Write finished tasks, and at the end waiting tasks, one in three of them retrying."""
        self.database.run(lambda c: _fill(c, per_batch, waiting))

    def mislead(self, tasks: int) -> None:
        """Let the server believe that each task has a batch of its own."""
        bad = (
            f"UPDATE mysql.innodb_index_stats SET stat_value={tasks}"  # noqa: S608 - constants only
            f" WHERE database_name='{self.name}' AND table_name='task'"
            " AND index_name='uq_task_key' AND stat_name='n_diff_pfx01'"
        )
        fixed = ("ALTER TABLE task STATS_AUTO_RECALC=0", "ANALYZE TABLE task, batch")
        for statement in (*fixed, bad, "FLUSH TABLE task"):
            self.database.run_singly(partial(Connection.execute, statement=text(statement)))

    def reads(self, work: Work) -> int:
        """Return how many rows a piece of work reads; on SQLite how many steps it takes."""
        return self.database.run(lambda c: reads.reads(c, work))

    def plan(self, work: Work) -> list[tuple[str, str]]:
        """Return table and index of each access that the server plans for a piece of work."""
        asked: list[tuple[str, Any]] = []

        def note(_at: Any, _cursor: Any, statement: str, parameters: Any, *_: object) -> None:
            if statement.startswith("SELECT"):
                asked.append((statement, parameters))

        def explain(connection: Connection) -> list[tuple[str, str]]:
            event.listen(connection, "before_cursor_execute", note)
            work(connection)
            event.remove(connection, "before_cursor_execute", note)
            plans = [_explained(connection, *question) for question in asked]
            return [(row["table"], row["key"]) for plan in plans for row in plan]

        return self.database.run(explain)


def _explained(connection: Connection, statement: str, parameters: Any) -> Sequence[Any]:
    question = f"EXPLAIN FORMAT=TRADITIONAL {statement}"
    return connection.exec_driver_sql(question, parameters).mappings().all()


def _fill(connection: Connection, per_batch: int, waiting: int) -> None:
    connection.execute(delete(task))
    connection.execute(delete(batch))
    batches = [{"id": 1 + n, "name": f"b{n}", "group_name": GROUP} for n in range(BATCHES)]
    connection.execute(insert(batch), batches)
    connection.execute(insert(task), [_finished(1 + n) for n in range(per_batch)])
    for number in range(1, BATCHES):
        same = [task.c.id + number * per_batch, task.c.batch_id + number]
        names = [column.name for column in task.c if column.name not in {"id", "batch_id"}]
        copied = select(*same, *(task.c[name] for name in names)).where(task.c.batch_id == 1)
        connection.execute(insert(task).from_select(["id", "batch_id", *names], copied))
    last = task.c.id > BATCHES * per_batch - waiting
    pending = update(task).where(last).values(status=int(Status.PENDING), due_at=utc_after(-3600))
    connection.execute(pending)
    retrying = update(task).where(last, task.c.id % 3 == 0).values(status=int(Status.RETRYING))
    connection.execute(retrying)


def _finished(task_id: int) -> dict[str, object]:
    key = f"{task_id * 7919 % 100_003:06d}".encode()
    row = {"id": task_id, "batch_id": 1, "task_key": key, "digest": bytes(16)}
    return row | {"status": int(Status.SUCCEEDED), "due_at": NEVER_TIME}


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger for one test, which spoils its statistics."""
    name = f"plans{next(_numbers)}"
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        url = driven(request.getfixturevalue(f"{request.param}_server").create_database(name))
    database = Database(url)
    migrations.migrate(database)
    yield Ledger(database, name)
    database.close()


on_all = pytest.mark.parametrize("ledger", KINDS, indirect=True)
on_servers = pytest.mark.parametrize("ledger", SERVERS, indirect=True)


def open_tasks(connection: Connection) -> bool:
    return open_work.any_open_task(connection, GROUP)


def replace_lost_records(connection: Connection) -> int:
    connection.execute(delete(outbox))
    return sweeping.replace_lost_records(connection, GROUP, COVERAGE, 600.0)


def old_open_tasks(connection: Connection) -> object:
    """Ask as earlier versions did: by a join, whose order the server chose."""
    query = select(task.c.id).join(batch, batch.c.id == task.c.batch_id)
    query = query.where(task.c.status.in_(OPEN), batch.c.group_name == GROUP)
    return connection.execute(query.limit(1)).scalar()


def old_lost_tasks(connection: Connection) -> object:
    """Ask as earlier versions did: for both statuses at once, with the group's batches as a set."""
    own_batches = select(batch.c.id).where(
        batch.c.group_name == GROUP, batch.c.cancelled_at.is_(None)
    )
    query = select(task.c.id).where(task.c.status.in_(WAITING), task.c.batch_id.in_(own_batches))
    query = query.where(task.c.due_at < utc_after(-600.0))
    return connection.execute(query.order_by(task.c.due_at).limit(sweeping.PAGE)).all()


def quarantined(group: str, count: int) -> Sequence[dict[str, object]]:
    return [
        {"group_name": group, "topic": group, "part": 0, "record_offset": number, "seen": 1}
        for number in range(count)
    ]


@on_all
def test_counting_the_quarantine_reads_no_records_of_other_groups(ledger: Ledger) -> None:
    """Only its index is read, not the records."""

    def count(connection: Connection) -> int:
        return quarantine.count_left(connection, GROUP, 100)

    ledger.database.run(lambda c: c.execute(insert(tables.quarantine), quarantined(GROUP, 5)))
    few = ledger.reads(count)
    ledger.database.run(lambda c: c.execute(insert(tables.quarantine), quarantined("x", LARGE)))

    assert ledger.database.run(count) == 5
    assert ledger.reads(count) < few + LARGE / 10


@on_all
def test_whether_work_is_left_costs_the_same_in_a_large_ledger(ledger: Ledger) -> None:
    """A ledger with four times as many tasks, but as many open ones, costs as many reads."""
    costs = []
    for size in (SMALL, LARGE):
        ledger.fill(size)
        assert ledger.database.run(open_tasks)
        costs.append(ledger.reads(open_tasks))

    assert costs[1] <= 1.1 * costs[0]


@on_all
def test_that_no_work_is_left_costs_the_same_in_a_large_ledger(ledger: Ledger) -> None:
    """Where all tasks are finished, none of them is read to find no open one."""
    costs = []
    for size in (SMALL, LARGE):
        ledger.fill(size, waiting=0)
        assert not ledger.database.run(open_tasks)
        costs.append(ledger.reads(open_tasks))

    assert costs[1] <= 1.1 * costs[0]


@on_all
def test_a_sweep_costs_the_same_in_a_large_ledger(ledger: Ledger) -> None:
    """A ledger with four times as many tasks, but as many lost ones, costs as many reads."""
    costs = []
    for size in (SMALL, LARGE):
        ledger.fill(size)
        costs.append(ledger.reads(replace_lost_records))
        assert ledger.database.run(lambda c: c.execute(select(outbox.c.id)).scalars().all())

    assert costs[1] <= 1.1 * costs[0]


def walk(connection: Connection) -> tuple[int, sweeping.SweepCursor | None]:
    """Walk a step in a group whose bulk lane is a day behind, and which lost nothing."""
    behind = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    carriers = [
        sweeping.StatusTopics(Status.PENDING, (name,), time)
        for name, time in (("tasks", None), (Lane.BULK.destination, behind))
    ]
    return sweeping.replace_lost_by_carrier(
        connection, group=GROUP, carriers=carriers, after=None, slack_s=600.0
    )


@on_all
def test_a_step_of_a_walk_costs_the_same_behind_any_backlog(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step looks at a bounded number of the bulk lane's tasks, whatever their number is."""
    monkeypatch.setattr(sweeping, "STEP", 200)
    costs = []
    for waiting in (BATCHES * SMALL // 2, BATCHES * LARGE // 2):
        ledger.fill(LARGE, waiting=waiting)
        ledger.database.run(_wait_in_bulk)
        found, place = ledger.database.run(walk)
        assert (found, place is None) == (0, False)
        costs.append(ledger.reads(walk))

    assert costs[1] <= 1.1 * costs[0]


QUESTIONS = {
    "open_tasks": (old_open_tasks, open_tasks),
    "lost_tasks": (old_lost_tasks, replace_lost_records),
}


@on_servers
@pytest.mark.parametrize(("old", "new"), QUESTIONS.values(), ids=QUESTIONS)
def test_no_statistics_change_the_plan(ledger: Ledger, old: Work, new: Work) -> None:
    """The old query went from each batch to all its tasks; the new one reads a page or two."""
    ledger.fill(LARGE, waiting=BATCHES * LARGE // 2)
    ledger.mislead(BATCHES * LARGE)

    assert ledger.plan(old)[0][0] == "batch", "these statistics mislead nobody: nothing is tested"
    assert ledger.reads(old) >= BATCHES * LARGE // 2
    indexes = {index for table, index in ledger.plan(new) if table == "task"}
    assert indexes <= {"ix_task_due", "ix_task_open", "PRIMARY"}
    assert ledger.reads(new) < 10 * sweeping.PAGE


@on_servers
def test_no_statistics_change_how_overdue_claims_are_found(ledger: Ledger) -> None:
    """With thousands of overdue claims, MySQL once read all tasks of every batch.

    Agents run this query every five seconds.
    """
    ledger.fill(LARGE, waiting=6 * sweeping.PAGE)
    waiting = update(task).where(task.c.status.in_(WAITING))
    ledger.database.run(lambda c: c.execute(waiting.values(status=int(Status.PROCESSING))))
    ledger.mislead(BATCHES * LARGE)

    assert ledger.reads(lambda c: reaping.overdue(c, GROUP)) < 10 * reaping.PAGE


@on_servers
def test_the_oldest_due_task_is_found_by_one_row_of_each_batch(ledger: Ledger) -> None:
    """The exporter asks every ten seconds, however many tasks wait."""
    ledger.fill(LARGE, waiting=BATCHES * LARGE // 2)
    ledger.mislead(BATCHES * LARGE)

    found_s = ledger.database.run(lambda c: snapshot.oldest_due_s(c, GROUP))
    assert min(found_s.values()) >= 3600
    assert ledger.reads(lambda c: snapshot.oldest_due_s(c, GROUP)) < 10 * BATCHES


def _wait_in_bulk(connection: Connection) -> None:
    """Let the pending tasks wait in the bulk lane, each since a time of its own."""
    due_at = utc_after(task.c.id * literal(0.001) - 7200.0)
    pending = update(task).where(task.c.status == int(Status.PENDING))
    connection.execute(pending.values(carrier=Lane.BULK.destination, due_at=due_at))


def _fill_replay(connection: Connection, finished: int) -> None:
    """Write a run with many finished items, and ten that wait behind them."""
    for table in (replay_item, replay_run):
        connection.execute(delete(table))
    run = {"id": 1, "group_name": GROUP, "selection": REQUEST, "total": finished + 10}
    connection.execute(insert(replay_run).values(**run, stored_at=utc_now()))
    items = [
        {"run_id": 1, "kind": TASK, "item_id": 1 + n, "fence": 0, "state": int(n < finished)}
        for n in range(finished + 10)
    ]
    connection.execute(insert(replay_item), items)


def look_at_replays(connection: Connection) -> None:
    """Do what every agent does each second, and for each page."""
    assert replay_progress.unfinished(connection, GROUP)
    assert len(runs.take(connection, run_id=1, kind=TASK, after=0, limit=5)) == 5
    assert not runs.end(connection, 1)


@on_all
def test_the_next_page_of_a_replay_costs_the_same_behind_many_finished_items(
    ledger: Ledger,
) -> None:
    """A run of a million items, nearly all of them finished, is looked at again and again."""
    costs = []
    for finished in (SMALL, 10 * SMALL):
        ledger.database.run(partial(_fill_replay, finished=finished))
        costs.append(ledger.reads(look_at_replays))

    assert costs[1] <= 1.1 * costs[0]


HOOKS = [(name, event) for name in ("invoice", "letter") for event in HookEvent]


def _fill_hooks(connection: Connection, others: int) -> None:
    """Write ten hooks that are due behind many that are not, or that no agent here knows."""
    connection.execute(delete(hook))
    row = {"group_name": GROUP, "type": "invoice", "event": "dead", "task_id": 1, "batch_id": 1}
    kept = (
        {"state": int(HookState.GAVE_UP), "due_at": utc_after(-3600)},
        {"type": "unknown", "due_at": utc_after(-3600)},
        {"due_at": utc_after(3600)},
    )
    for values in kept:
        connection.execute(insert(hook).values(**row | values))
    for _ in range(others.bit_length()):
        names = [column.name for column in hook.c if column.name != "id"]
        copied = select(*(hook.c[name] for name in names))
        connection.execute(insert(hook).from_select(names, copied))
    connection.execute(insert(hook).values(due_at=utc_after(-1)), [row] * 10)


def look_at_hooks(connection: Connection) -> None:
    """Do what every agent does each second."""
    assert len(hook_runs.due_ids(connection, GROUP, HOOKS, 16)) == 10
    assert not hook_runs.any_running(connection, GROUP)
    assert not hook_runs.end_lost_leases(connection, GROUP)


@on_all
def test_due_hooks_are_found_behind_any_number_of_others(ledger: Ledger) -> None:
    """Hooks that wait, were given up or are of an unknown type are not read."""
    costs = []
    for others in (60, 4000):
        ledger.database.run(partial(_fill_hooks, others=others))
        costs.append(ledger.reads(look_at_hooks))

    assert costs[1] <= 1.1 * costs[0]


JOIN = 1_000_000


def _fill_joins(connection: Connection, siblings: int) -> None:
    """Let a join wait for so many of the tasks, the newest of which is open, and others beside it.

    Nothing of the others is open.
    """
    for table in (tables.follow_up, tables.waiting):
        connection.execute(delete(table))
    last = connection.execute(select(func.max(task.c.id))).scalar_one()
    own = range(last - siblings + 1, last + 1)
    of_own = update(task).where(task.c.id.in_(own))
    connection.execute(of_own.values(parent_id=1, join_role=int(JoinRole.SIBLING)))
    connection.execute(update(task).where(task.c.id == last).values(status=int(Status.PENDING)))
    links = [{"parent_id": 1, "task_id": task_id} for task_id in own]
    links += [{"parent_id": parent, "task_id": 1} for parent in range(2, 300)]
    connection.execute(insert(tables.follow_up), links)
    kind = {"batch_id": 1, "status": int(Status.PENDING), "join_role": int(JoinRole.WAIT)}
    rows = [
        _finished(JOIN + parent) | kind | {"parent_id": parent, "task_key": b"join %d" % parent}
        for parent in range(1, 300)
    ]
    connection.execute(insert(task), rows)
    waits = [joins.waiting_for(parent).key for parent in range(1, 300)]
    connection.execute(
        insert(tables.waiting),
        [
            {"task_id": JOIN + int(key), "fence": 0, "group_name": GROUP, "reason": "CHILDREN"}
            | {"reason_key": key, "due_at": NEVER_TIME}
            for key in waits
        ],
    )


def ask_for_a_join(connection: Connection) -> object:
    return joins.call_up(connection, GROUP, ["1"])


@on_all
def test_the_end_of_a_sibling_costs_the_same_among_many(ledger: Ledger) -> None:
    """However many siblings a join has, how many joins wait beside it, and how many tasks are."""
    costs = []
    for size, siblings in ((SMALL, 10), (LARGE, 900)):
        ledger.fill(size, waiting=0)
        ledger.database.run(partial(_fill_joins, siblings=siblings))
        assert ledger.database.run(ask_for_a_join) == []
        costs.append(ledger.reads(ask_for_a_join))

    assert costs[1] <= 1.1 * costs[0]


OWNERS = {1: 11, 2: 12}  # of the tasks that take the lock, and then wait for it


def _fill_locks(connection: Connection, others: int) -> None:
    """Write locks and waits of others, and two running tasks."""
    for table in (task, resource_lock, lock_wait):
        connection.execute(delete(table))
    locks = [
        {"group_name": GROUP, "name": f"other {number}", "task_id": 1000 + number, "owner": number}
        for number in range(1, others)
    ]
    connection.execute(insert(resource_lock), locks)
    connection.execute(insert(lock_wait), [row | {"ticket": 1} for row in locks])
    for task_id, owner in OWNERS.items():
        row = _finished(task_id) | {"status": int(Status.PROCESSING), "owner": owner}
        connection.execute(insert(task), row)


def use_locks(connection: Connection) -> None:
    """Take a lock, wait for it, give it back, look at it, and forget what is old."""
    first, second = (Claimant(task_id, owner) for task_id, owner in OWNERS.items())
    for change, holder in (
        (LockChange(asking=[first]), first),
        (LockChange(asking=[second]), first),
        (LockChange(leaving=[first]), second),
    ):
        (held,) = lock_rows.change(connection, GROUP, {"mine": change})
        assert held.holder == holder
    assert len(lock_rows.read_holders(connection, GROUP, ["mine", "other 1"])) == 2
    assert lock_rows.forget(connection) == 0
    (held_lock,) = task_locks.of_claim(connection, GROUP, second.task_id, second.owner)
    assert held_lock["name"] == "mine"


@on_all
def test_a_lock_is_found_beside_any_number_of_others(ledger: Ledger) -> None:
    """No statement reads the locks that others hold, or for which they wait."""
    costs = []
    for others in (60, 4000):
        ledger.database.run(partial(_fill_locks, others=others))
        costs.append(ledger.reads(use_locks))

    assert costs[1] <= 1.1 * costs[0]
