"""The ledger seen from outside: plain read queries, on SQLite and on MySQL."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, Executable, create_engine, func, select
from sqlalchemy.engine import Row
from sqlalchemy.pool import NullPool

from docllm.producer.ledger.claiming_agent import agent_in
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import (
    agent,
    batch,
    dead_letter,
    outbox,
    quarantine,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.states import OPEN, Status
from tests.invariants.evidence import Attempt, Death, Task

EPOCH = NEVER_TIME.replace(year=1970, month=1, day=1)


def engine(url: str) -> Engine:
    """Return an engine that opens a connection for each use.

    A server may stop and start between two uses. Without `ssl_` options in the address, connections
    to a server are not encrypted: PyMySQL would load the system's certificates for each of them,
    which takes 25 ms of CPU.
    """
    if not url.startswith("mysql://"):
        return create_engine(url, poolclass=NullPool)
    return create_engine(
        url.replace("mysql://", "mysql+pymysql://"),
        poolclass=NullPool,
        connect_args={} if "ssl_" in url else {"ssl_disabled": True},
    )


class LedgerView:
    """Reads one ledger."""

    def __init__(self, url: str) -> None:
        self._engine = engine(url)

    def counts(self) -> Mapping[str, int]:
        """Return the number of tasks in each state, by the state's lower-case name.

        All states are in the result.
        """
        counts = dict.fromkeys((status.name.lower() for status in Status), 0)
        rows = self._all(select(task.c.status, func.count().label("n")).group_by(task.c.status))
        return counts | {Status(row.status).name.lower(): row.n for row in rows}

    def carriers(self, state: str) -> Mapping[str, int]:
        """Return the number of tasks in a state by the topic that carries their newest record."""
        query = select(task.c.carrier, func.count().label("n")).group_by(task.c.carrier)
        of_state = query.where(task.c.status == int(Status[state.upper()]))
        return {row.carrier: row.n for row in self._all(of_state)}

    def open(self) -> int:
        """Return how many tasks are not final."""
        counts = self.counts()
        return sum(counts[status.name.lower()] for status in OPEN)

    def tasks(self) -> list[Task]:
        """Return every task."""
        results = {
            row.task_id: row.created_at
            for row in self._all(select(task_result.c.task_id, task_result.c.created_at))
        }
        deaths = {
            row.task_id: Death(row.fence, row.disposition, row.error_class)
            for row in self.dead_letters()
        }
        columns = [
            task.c[name]
            for name in "id task_key status attempt max_attempts replays fence owner".split()
        ]
        query = select(*columns, batch.c.name, task_input.c.raw_key, task_input.c.body)
        joined = query.join(batch, batch.c.id == task.c.batch_id).join(
            task_input, task_input.c.task_id == task.c.id
        )
        return [_task(row, results, deaths.get(row.id)) for row in self._all(joined)]

    def loaded(self, batch_name: str) -> int:
        """Return how many tasks a batch has."""
        query = (
            select(task.c.id)
            .join(batch, batch.c.id == task.c.batch_id)
            .where(batch.c.name == batch_name)
        )
        return len(self._all(query))

    def orders(self) -> int:
        """Return how many publish orders wait."""
        return len(self._all(select(outbox.c.id)))

    def quarantined(self) -> list[Row[Any]]:
        """Return the rows of the quarantine."""
        return self._all(select(quarantine).order_by(quarantine.c.id))

    def dead_letters(self) -> list[Row[Any]]:
        """Return the rows of the dead letters."""
        return self._all(select(dead_letter))

    def attempts(self) -> list[Attempt]:
        """Return the attempts that did not succeed, in the order of their ends."""
        columns = [
            task_attempt.c[name]
            for name in "attempt outcome error_class started_at duration_ms".split()
        ]
        query = select(*columns, task.c.task_key, batch.c.name).join(
            task, task.c.id == task_attempt.c.task_id
        )
        return [
            _attempt(row)
            for row in self._all(
                query.join(batch, batch.c.id == task.c.batch_id).order_by(task_attempt.c.id)
            )
        ]

    def dues(self) -> dict[tuple[str, int], float]:
        """Return when each retrying task is due, by name and number of the next attempt.

        Times are UTC seconds.
        """
        query = select(task.c.task_key, task.c.attempt, task.c.due_at, batch.c.name).join(
            batch, batch.c.id == task.c.batch_id
        )
        rows = self._all(query.where(task.c.status == int(Status.RETRYING)))
        return {
            (spelled(row.name, row.task_key), row.attempt + 1): _utc_s(row.due_at) for row in rows
        }

    def claims_of(self, pid: int) -> dict[str, int]:
        """Return the tasks claimed by agents of this process, with their earlier losses."""
        agents = [
            row.id for row in self._all(select(agent.c.id).where(agent.c.name.endswith(f":{pid}")))
        ]
        query = select(batch.c.name, task.c.task_key, task.c.lease_losses).join(
            batch, batch.c.id == task.c.batch_id
        )
        rows = self._all(
            query.where(
                task.c.status == int(Status.PROCESSING),
                agent_in(task.c.owner).in_(agents),
            )
        )
        return {spelled(row.name, row.task_key): row.lease_losses for row in rows}

    def settled_by(self, pid: int) -> int:
        """Return how many results the agents of this process wrote."""
        agents = [
            row.id for row in self._all(select(agent.c.id).where(agent.c.name.endswith(f":{pid}")))
        ]
        return len(
            self._all(
                select(task_result.c.task_id).where(agent_in(task_result.c.owner).in_(agents))
            )
        )

    def agents(self) -> list[Row[Any]]:
        """Return the rows of the agents."""
        return self._all(select(agent))

    def _all(self, query: Executable) -> list[Row[Any]]:
        with self._engine.connect() as connection:
            return list(connection.execute(query).all())


def spelled(batch_name: str, key: bytes) -> str:
    """Return a task's name in the form of a request id."""
    return f"{quote(batch_name, safe='')}/{quote(key, safe='')}"


def _utc_s(moment: datetime) -> float:
    return (moment - EPOCH).total_seconds()


def _attempt(row: Row[Any]) -> Attempt:
    settled_s = _utc_s(row.started_at) + row.duration_ms / 1000
    return Attempt(
        spelled(row.name, row.task_key), row.attempt, row.outcome, row.error_class, settled_s
    )


def _task(row: Row[Any], results: Mapping[int, datetime], death: Death | None) -> Task:
    settled = results.get(row.id)
    return Task(
        id=row.id,
        name=spelled(row.name, row.task_key),
        status=row.status,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        replays=row.replays,
        fence=row.fence,
        owner=row.owner,
        raw_key=row.raw_key,
        value=row.body,
        results=int(settled is not None),
        death=death,
        settled_s=_utc_s(settled) if settled is not None else None,
    )
