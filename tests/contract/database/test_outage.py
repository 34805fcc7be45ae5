"""While the server is frozen or gone the ledger waits; then the work goes on.

Nothing is decided during the outage.
"""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from docllm.agent.ledger.sql_ledger import Executors, SqlLedger
from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import Outcome
from docllm.producer.ledger import store
from docllm.producer.ledger.status.batch_wait import read_progress, wait_for_batch
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.states import Status
from tests.servers import Server
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    LONGEST,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
    settlement,
)

pytestmark = pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)

TIMEOUT_S = 2
OUTAGE_S = 4.0  # longer than the connection's timeout


@pytest.fixture
def server(migrated: LedgerDatabase, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server under the ledger; it runs again when the test is over."""
    name = (
        "mariadb"
        if "mariadb"
        in migrated.run(lambda c: str(c.exec_driver_sql("SELECT VERSION()").scalar())).lower()
        else "mysql"
    )
    server = request.getfixturevalue(f"{name}_server")
    yield server
    server.thaw()
    if not server.ready():
        server.restart()


@pytest.fixture
def ledger(ledger_db: LedgerDatabase) -> Iterator[SqlLedger]:
    """The port on connections of its own with a short timeout."""
    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False), timeout_s=TIMEOUT_S
    )
    executors = Executors(
        ThreadExecutor("claim"), ThreadExecutor("settle"), ThreadExecutor("background")
    )
    yield SqlLedger(
        database=database,
        group=GROUP,
        clock=SystemClock(),
        executors=executors,
        longest_tier=LONGEST,
    )
    database.close()
    for executor in (executors.claim, executors.settle, executors.background):
        assert isinstance(executor, ThreadExecutor)
        executor.close()


def test_a_group_waits_for_a_frozen_server(
    ledger_db: LedgerDatabase, ledger: SqlLedger, server: Server
) -> None:
    """A settle that meets a frozen server neither splits nor gives up.

    It commits when the server goes on.
    """
    ids = ledger_db.load("a", "b", "c")
    owner = ledger_db.agent().next_owner()
    rows = [ledger_db.claimed(task_id, owner) for task_id in ids]
    outcomes: list[Outcome] = [SUCCEEDED, RETRY, DEAD]
    group = [settlement(row, owner, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
    asyncio.run(ledger.ask([ledger_db.record(ids[0])]))
    server.freeze()
    threading.Timer(OUTAGE_S, server.thaw).start()

    verdicts, _ = asyncio.run(ledger.settle(group))

    assert verdicts == [Verdict.SETTLED] * 3
    assert [ledger_db.status(task_id) for task_id in ids] == [
        Status.SUCCEEDED,
        Status.RETRYING,
        Status.DEAD,
    ]
    assert ledger_db.count(tables.task_result) == 1
    assert [row.error_class for row in ledger_db.rows(tables.dead_letter)] == ["BAD_REQUEST"]


def test_a_group_waits_for_a_server_that_was_killed(
    ledger_db: LedgerDatabase, ledger: SqlLedger, server: Server
) -> None:
    """After the server is killed and restarted, every outcome is there, once."""
    ids = ledger_db.load("a", "b", "c")
    owner = ledger_db.agent().next_owner()
    rows = [ledger_db.claimed(task_id, owner) for task_id in ids]
    asyncio.run(ledger.ask([ledger_db.record(ids[0])]))
    server.kill()
    threading.Timer(1.0, server.start).start()

    verdicts, _ = asyncio.run(ledger.settle([settlement(row, owner, SUCCEEDED) for row in rows]))

    assert verdicts == [Verdict.SETTLED] * 3
    assert ledger_db.count(tables.task_result) == 3
    assert ledger_db.count(tables.dead_letter) == 0


def test_a_claim_waits_for_the_server_with_its_own_token(
    ledger_db: LedgerDatabase, ledger: SqlLedger, server: Server
) -> None:
    """Whether its first try committed or not, the claim ends with a true answer."""
    (task_id,) = ledger_db.load("a")
    owner = ledger_db.agent().next_owner()
    server.freeze()
    threading.Timer(OUTAGE_S, server.thaw).start()

    answers = asyncio.run(ledger.claim([ledger_db.record(task_id)], owner, 600.0))

    assert answers[task_id][0] is ClaimAnswer.CLAIMED
    assert ledger_db.task(task_id).owner == owner


def test_a_wait_for_a_batch_outlasts_a_frozen_server(
    ledger_db: LedgerDatabase, server: Server
) -> None:
    """A look that meets a frozen server is repeated until the server goes on.

    Cron must not take the outage for the end of the batch, nor for its failure.
    """
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, SUCCEEDED)
    ledger_db.call(store.close_batch, ledger_db.batch())
    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False), timeout_s=TIMEOUT_S
    )
    executor = ThreadExecutor("database")
    transactions = Transactions(database=database, executor=executor)
    asyncio.run(transactions.read(read_progress, GROUP, BATCH))
    server.freeze()
    threading.Timer(OUTAGE_S, server.thaw).start()

    end = asyncio.run(wait_for_batch(transactions, GROUP, BATCH, clock=SystemClock()))

    assert end.done
    assert database.outage.lasts_s > 0
    database.close()
    executor.close()


def test_a_server_that_does_not_answer_is_named(ledger_db: LedgerDatabase, server: Server) -> None:
    """At the start a program names the server that it cannot reach, without a password."""
    url = ledger_db.database.engine.url.set(password="a-secret")  # noqa: S106 - it must not be shown
    database = Database(url.render_as_string(hide_password=False), timeout_s=TIMEOUT_S)
    server.freeze()

    with pytest.raises(UnreachableError) as raised:
        database.require_usable()

    assert f"127.0.0.1:{url.port}" in str(raised.value)
    assert "a-secret" not in str(raised.value)
    database.close()


def test_a_server_that_takes_small_statements_alone_is_named(ledger_db: LedgerDatabase) -> None:
    """The error comes at the start, with the setting to change.

    Otherwise the server would end the connection at the first large task.
    """
    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False), timeout_s=TIMEOUT_S
    )
    # For later connections.
    ledger_db.run(lambda c: c.exec_driver_sql("SET GLOBAL max_allowed_packet=4194304"))
    try:
        with pytest.raises(
            UnsafeStateError, match=r"accepts at most 4194304 bytes .* set max_allowed_packet=64M"
        ):
            database.require_usable()
    finally:
        ledger_db.run(lambda c: c.exec_driver_sql("SET GLOBAL max_allowed_packet=67108864"))
        database.close()
