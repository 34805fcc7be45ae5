"""A ledger to test on, for each kind of database, and the first moves of most tests.

Nothing here waits: `ago` puts a stored time into the past instead.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest
from sqlalchemy import Column, Table, delete, event, exists, func, select, update

from docllm.agent.judge import Tier
from docllm.agent.lease import Lease
from docllm.agent.ledger.claims import claiming
from docllm.agent.ledger.leases import leasing
from docllm.agent.ledger.settlements.follow_ups import ordered
from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports import Claimable, ClaimAnswer, ClaimAnswers, Row, Settlement, Verdict
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.producer.ledger import cancel, store
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ports import Order
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Connection, Database
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.envelope import Publication, digest
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import Status

Given = ParamSpec("Given")
Result = TypeVar("Result")

KINDS = ("sqlite", "mariadb", "mysql")
only_mariadb = pytest.mark.parametrize("migrated", ["mariadb"], indirect=True)
only_sqlite = pytest.mark.parametrize("migrated", ["sqlite"], indirect=True)

GROUP = "group"
BATCH = "batch"
ORIGIN = (f"{GROUP}.tasks", 3, 17, 1_700_000_000_000)
LONGEST = Tier("1h", 3600.0)
SPENT = Spent(
    model="model", tokens_in=10, tokens_out=5, cost_micro=300, call_id="trace", duration_ms=1500
)
REFUSED = Failure(ErrorClass.SERVER, "it answered 503")

SUCCEEDED = Succeeded(b"answer", COMPLETION, SPENT)
RETRY = Retry(REFUSED, SPENT, "30s", 31.0)
SNOOZE = Snooze(REFUSED, SPENT, 20.0)
DEAD = Dead(Failure(ErrorClass.BAD_REQUEST, "it answered 400"), SPENT)
# Dead however many die of it: a dozen refusals for one reason would raise a guard.
TOO_LONG = Dead(Failure(ErrorClass.TOO_LONG, "it answered 413"), SPENT)
RELEASED = Released()


_EMPTIED = [table for table in tables.metadata.tables.values() if table is not tables.ledger]
_FILLED = select(*(exists().select_from(table).label(table.name) for table in _EMPTIED))


class LedgerDatabase:
    """A migrated database and short names for what tests do with it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.transactions = Transactions(database=database, executor=InlineExecutor())
        self.run = database.run
        self.ledger_id = self.run(migrations.ledger_id)

    def call(
        self,
        work: Callable[Concatenate[Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Call `work` with these arguments behind the connection, in one transaction."""
        return self.run(lambda c: work(c, *given, **named))

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """Yield a list to which each statement of the block is added."""
        texts: list[str] = []

        def heard(*call: Any) -> None:
            texts.append(call[2])

        event.listen(self.database.engine, "before_cursor_execute", heard)
        try:
            yield texts
        finally:
            event.remove(self.database.engine, "before_cursor_execute", heard)

    def empty(self) -> None:
        """Forget everything except the ledger's id."""
        filled = self.run(lambda c: c.execute(_FILLED).mappings().one())
        emptied = [delete(table) for table in _EMPTIED if filled[table.name]]
        self.run(lambda c: [c.execute(statement) for statement in emptied])

    # ---- what a test begins with

    def batch(
        self, name: str = BATCH, group: str = GROUP, origin: store.Origin = store.Origin.LOAD
    ) -> store.Batch:
        """Return the batch of this name, whoever made it; make it if it is missing."""
        return self.run(lambda c: store.find_batch(c, name)) or self.run(
            lambda c: store.open_batch(c, name, group, origin)
        )

    def load(self, *keys: str, into: str = BATCH, group: str = GROUP) -> list[int]:
        """Load one task per key, and drop the order, as after its delivery."""
        accepted = self.accept([new_task(key) for key in keys], self.batch(into, group))
        self.run(lambda c: c.execute(delete(tables.outbox)))
        return list(accepted.new.values())

    def accept(self, tasks: Sequence[NewTask], into: store.Batch) -> store.Accepted:
        first = self.run(lambda c: store.take_ids(c, len(tasks)))
        return self.run(lambda c: store.accept(c, into, tasks, first))

    def agent(self, name: str = "agent", group: str = GROUP) -> Lease:
        """Register an agent of this version."""
        revision = migrations.own_revision()
        return Lease(
            self.run(
                lambda c: leasing.register(
                    c, name=name, group=group, version="1", revision=revision
                )
            ),
            0.0,
        )

    def steady_agent(self) -> Lease:
        """Return an agent that has sent heartbeats for long enough to judge others."""
        lease = self.agent("judge")
        self.ago(tables.agent.c.steady_since, 60, lease.agent_id)
        return lease

    def lost_agent(self) -> Lease:
        """Return an agent that was declared lost."""
        lease = self.agent("lost")
        self.run(lambda c: leasing.declare_lost(c, lease.agent_id))
        return lease

    # ---- moves

    def record(
        self, task_id: int, fence: int = 0, *, ledger: str | None = None, stamp: bytes | None = None
    ) -> Claimable:
        """Return the record of a task as an agent that keeps no body knows it."""
        return Claimable(
            Publication(
                ledger=ledger or self.ledger_id,
                group=GROUP,
                batch=BATCH,
                task_id=task_id,
                fence=fence,
            ),
            stamp,
        )

    def answers(
        self, records: Sequence[Claimable], owner: int, claim_s: float = 600.0
    ) -> ClaimAnswers:
        return self.run(lambda c: claiming.claim(c, records, owner, claim_s, with_suspects=True))

    def claim(self, task_id: int, owner: int, fence: int = 0) -> ClaimAnswer:
        return self.answers([self.record(task_id, fence)], owner)[task_id][0]

    def ask(self, task_id: int, fence: int = 0) -> ClaimAnswer:
        return self.run(lambda c: claiming.ask(c, [self.record(task_id, fence)]))[task_id][0]

    def claimed(self, task_id: int, owner: int, fence: int = 0) -> Row:
        """Claim a task that must be free; return its row."""
        answer, row = self.answers([self.record(task_id, fence)], owner)[task_id]
        assert answer is ClaimAnswer.CLAIMED
        assert row is not None
        return row

    def settle(self, row: Row, owner: int, outcome: Outcome) -> Verdict:
        return self.settle_all([settlement(row, owner, outcome)])[0][0]

    def settled(self, task_id: int, outcome: Outcome) -> Verdict:
        """Let an agent claim a task and settle it."""
        owner = self.agent().next_owner()
        return self.settle(self.claimed(task_id, owner), owner, outcome)

    def settle_all(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        first_id = self.run(lambda c: store.take_ids(c, sum(map(len, map(ordered, settlements)))))
        return self.run(
            lambda c: settle(
                c,
                group=GROUP,
                settlements=settlements,
                now_utc_s=1_700_000_000.0,
                longest_tier=LONGEST,
                first_id=first_id,
            )
        )

    def cancel(self, name: str = BATCH) -> None:
        """Mark a batch as cancelled; the rows of its tasks are not touched."""
        which = self.batch(name)
        self.run(lambda c: cancel.cancel_batch(c, which, "somebody"))

    # ---- a look at the tables

    def task(self, task_id: int) -> Any:
        return self.run(
            lambda c: c.execute(select(tables.task).where(tables.task.c.id == task_id)).one()
        )

    def status(self, task_id: int) -> Status:
        return Status(self.task(task_id).status)

    def due_in_s(self, task_id: int) -> float:
        """Return the seconds until a task is due, by the database's clock.

        The result is rounded to milliseconds, because SQLite's day is no more exact.
        """
        _, row = self.run(lambda c: claiming.ask(c, [self.record(task_id)]))[task_id]
        assert row is not None
        return round(row.due_in_s, 3)

    def rows(self, table: Table[Any]) -> Sequence[Any]:
        return self.run(
            lambda c: c.execute(select(table).order_by(*table.primary_key.columns)).all()
        )

    def count(self, table: Table[Any]) -> int:
        return self.run(lambda c: c.execute(select(func.count()).select_from(table)).scalar_one())

    def ago(self, column: Column[Any], seconds: float, *ids: int) -> None:
        """Set a time of these rows (of all, without ids) to `seconds` before now."""
        table = column.table
        (key,) = table.primary_key.columns
        change = update(table).values({column.name: utc_after(-seconds)})
        self.run(lambda c: c.execute(change.where(key.in_(ids)) if ids else change))

    def set(self, table: Table[Any], key: int, **values: Any) -> None:
        (column,) = table.primary_key.columns
        self.run(lambda c: c.execute(update(table).where(column == key).values(**values)))


def new_task(key: str, value: bytes | None = None, raw_key: bytes | None = b"raw") -> NewTask:
    name, body = key.encode(), b"value of " + key.encode() if value is None else value
    return NewTask(
        key=name,
        digest=digest(name, body),
        value=body,
        type="document",
        tenant="",
        max_attempts=5,
        expires_at=None,
        raw_key=raw_key,
    )


def settlement(row: Row, owner: int, outcome: Outcome) -> Settlement:
    return Settlement(row=row, owner=owner, outcome=outcome, route="route", origin=ORIGIN)


def driven(url: str) -> str:
    """Return a server's address with the driver that the settings would add."""
    return url.replace("mysql://", "mysql+pymysql://", 1)


@pytest.fixture(scope="session", params=KINDS)
def migrated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LedgerDatabase]:
    """One migrated database of each kind for the whole run."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}"
    else:
        url = driven(request.getfixturevalue(f"{request.param}_server").create_database("contract"))
    database = Database(url, timeout_s=5)
    migrations.migrate(database)
    yield LedgerDatabase(database)
    database.close()


@pytest.fixture
def ledger_db(migrated: LedgerDatabase) -> LedgerDatabase:
    """An empty ledger."""
    migrated.empty()
    return migrated
