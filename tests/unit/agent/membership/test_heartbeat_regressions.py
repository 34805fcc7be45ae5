"""Bugs that the simulation found, each as a small test that names it."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError

from docllm.agent.lease import Lease
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.agent.membership.life_locks import LifeLocks
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Connection, Database
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor

Result = TypeVar("Result")


class Stumbling(Database):
    """Fails the first transaction of every call that reads, with a passing error."""

    def run_singly(
        self, work: Callable[[Connection], Result], *, tries: int | None = None
    ) -> Result:
        fresh = True

        def stumble(connection: Connection) -> Result:
            nonlocal fresh
            if fresh:
                fresh = False
                raise OperationalError("SELECT", {}, sqlite3.OperationalError("database is locked"))
            return work(connection)

        return super().run_singly(stumble, tries=tries)


def test_an_agent_registers_though_the_database_stumbles(tmp_path: Path) -> None:
    """A passing database error during registration does not end the agent."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    database = Database(url)
    migrations.migrate(database)
    database.close()
    stumbling = Stumbling(url, pause=lambda _delay_s: None)
    heartbeat = Heartbeat(
        transactions=Transactions(database=stumbling, executor=InlineExecutor()),
        clock=SystemClock(),
        name="a",
        group="g",
        version="0",
        locks=None,
        revision="",
        report=str,
    )

    lease = asyncio.run(heartbeat.register())

    stumbling.close()
    assert heartbeat.current is lease


class Full(LifeLocks):
    """Has no descriptor left for a lock file."""

    def hold(self, agent_id: int) -> None:
        raise OSError(24, f"Too many open files: {agent_id}.lock")


def test_a_heartbeat_survives_any_error_of_a_beat(tmp_path: Path) -> None:
    """A heartbeat survives whatever happens to one beat.

    An agent whose heartbeat had ended used to stay: it held its partitions, claimed nothing, and
    logged nothing.
    """
    database = Database(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    migrations.migrate(database)
    heartbeat = Heartbeat(
        transactions=Transactions(database=database, executor=InlineExecutor()),
        clock=SystemClock(),
        name="a",
        group="g",
        version="0",
        locks=Full(tmp_path),
        revision="",
        report=str,
    )
    heartbeat._leases.append(Lease(1, -100.0))

    good = asyncio.run(heartbeat.beat_once())

    database.close()
    assert not good
