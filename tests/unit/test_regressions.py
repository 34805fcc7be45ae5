"""Bugs that the simulation found, each as a small test that names it."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import OperationalError

from agent.heartbeat import Heartbeat
from schemas import migrations
from schemas.clock import SystemClock
from schemas.database import Connection, Database
from schemas.lanes import InlineLane

Result = TypeVar("Result")


class Stumbling(Database):
    """Fails the first transaction of every call that reads, in a way that passes."""

    def auto(self, work: Callable[[Connection], Result], *, tries: int | None = None) -> Result:
        fresh = True

        def stumble(connection: Connection) -> Result:
            nonlocal fresh
            if fresh:
                fresh = False
                raise OperationalError("SELECT", {}, sqlite3.OperationalError("database is locked"))
            return work(connection)

        return super().auto(stumble, tries=tries)


def test_an_agent_registers_though_the_database_stumbles(tmp_path: Path) -> None:
    """An error that passes while an agent registers does not end the agent."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    database = Database(url)
    migrations.migrate(database)
    database.close()
    stumbling = Stumbling(url, pause=lambda _delay_s: None)
    heartbeat = Heartbeat(
        database=stumbling, lane=InlineLane(), clock=SystemClock(), name="a", group="g", version="0", locks=None, notice=str
    )

    lease = asyncio.run(heartbeat.register())

    stumbling.close()
    assert heartbeat.current is lease
