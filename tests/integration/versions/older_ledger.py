"""The ledger of an older version, made by its migrations and filled with such rows as it wrote.

The rows have the columns that the first release had.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from alembic.config import Config as AlembicConfig
from alembic.runtime.environment import EnvironmentContext
from sqlalchemy import Connection, update

from docllm.agent.judge import fingerprint
from docllm.producer.ledger.outbox import TASK, pack
from docllm.producer.ports import Item
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.migrations.upgrade import scripts
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.states import Status

FIRST = "0001"
BEFORE_FACTS = "0004"
OPEN, CANCELLED, CLOSED, INBOX = 1, 2, 3, 4  # the batches
STOPPED, LOST = 11, 12  # the agents
LEDGER_ID = bytes(range(16))
THEN = datetime(2001, 1, 1)  # noqa: DTZ001 - the database's times are UTC without a zone


@dataclass(frozen=True, slots=True)
class Older:
    """A task of the older ledger; a dead one has an error class, a disposition and a route."""

    id: int
    batch: int
    status: Status
    tenant: str = ""
    type: str = ""
    owner: int = 0
    attempt: int = 0
    error: str = ""
    disposition: str = ""
    route: str = ""

    @property
    def text(self) -> str:
        """Return the error's text; the fingerprint is made of it."""
        return f"it failed with {self.error}"


TASKS = (
    Older(1, OPEN, Status.PENDING, tenant="a"),
    Older(2, OPEN, Status.PROCESSING, owner=(STOPPED << 24) + 1),
    Older(3, OPEN, Status.PROCESSING, owner=(LOST << 24) + 1),
    Older(4, OPEN, Status.RETRYING, tenant="b", attempt=1),
    Older(5, OPEN, Status.SUCCEEDED, tenant="a"),
    Older(6, OPEN, Status.SUCCEEDED),
    Older(7, OPEN, Status.DEAD, "a", "", 0, 1, "BAD_REQUEST", "permanent", "main"),
    Older(8, OPEN, Status.DEAD, "b", "", 0, 1, "BAD_REQUEST", "permanent", "main"),
    Older(9, OPEN, Status.DEAD, "", "", 0, 5, "SERVER", "exhausted", "main"),
    Older(10, OPEN, Status.DEAD, "a", "", 0, 1, "TOO_LONG", "permanent", "Main"),
    Older(11, CANCELLED, Status.CANCELLED, tenant="a"),
    Older(12, CANCELLED, Status.CANCELLED),
    Older(13, CANCELLED, Status.SUCCEEDED),
    Older(14, CANCELLED, Status.DEAD, "", "", 0, 1, "TOO_LONG", "permanent", "main"),
    Older(15, CLOSED, Status.SUCCEEDED),
    Older(16, CLOSED, Status.DEAD, "a", "", 0, 2, "SERVER", "exhausted", "Main"),
    Older(17, INBOX, Status.PENDING),
    Older(18, INBOX, Status.SUCCEEDED),
)
DEAD = [task for task in TASKS if task.status is Status.DEAD]


def migrate_to(connection: Connection, revision: str) -> None:
    """Make the schema of an older version, as its `migrate` did."""
    directory = scripts()
    with EnvironmentContext(
        AlembicConfig(), directory, fn=lambda present, _: directory._upgrade_revs(revision, present)
    ) as environment:
        environment.configure(connection=connection)
        with environment.begin_transaction():
            environment.run_migrations()
    connection.commit()


def make(connection: Connection, group: str, revision: str) -> None:
    """Make the ledger of a group whose agents were stopped, some of them amid their work."""
    migrate_to(connection, revision)
    _insert(connection, "ledger", {"ledger_id": LEDGER_ID})
    _insert(connection, "id_block", {"name": "task", "next": 1000})
    for number, ended in ((STOPPED, "stopped_at"), (LOST, "lost_at")):
        name = f"host:{number}"
        row = {"id": number, "name": name, "group_name": group, "version": "0.0.1"}
        _insert(connection, "agent", row)
        connection.execute(
            update(tables.agent).where(tables.agent.c.id == number).values({ended: utc_now()})
        )
    for number, name, more in (
        (OPEN, "open", {}),
        (CANCELLED, "cancelled", {"cancelled_at": THEN}),
        (CLOSED, "closed", {"closed_at": THEN}),
        (INBOX, f"{group}-direct", {"note": "intake"}),
    ):
        _insert(connection, "batch", {"id": number, "name": name, "group_name": group} | more)
    for task in TASKS:
        _insert_task(connection, task)
    _insert_orders(connection, group)
    _insert_counts(connection, dispositions=revision > FIRST)
    connection.commit()


def _insert_task(connection: Connection, task: Older) -> None:
    key = f"k{task.id}".encode()
    body = orjson.dumps({"id": key.decode(), "prompt": f"Say a word about thing {task.id}."})
    waits = task.status in (Status.PENDING, Status.RETRYING)
    row = {
        "id": task.id,
        "batch_id": task.batch,
        "task_key": key,
        "digest": digest(key, body),
        "tenant": task.tenant,
        "type": task.type,
        "status": int(task.status),
        "attempt": task.attempt,
        "fence": task.attempt,
        "owner": task.owner,
        "due_at": THEN if waits else NEVER_TIME,
        "created_at": THEN,
    }
    _insert(connection, "task", row)
    _insert(connection, "task_input", {"task_id": task.id, "raw_key": key, "body": body})
    spent = {"tokens_in": 10 * task.id, "tokens_out": task.id, "cost_micro": 100 * task.id}
    if task.status is Status.SUCCEEDED:
        result = {"task_id": task.id, "model": "m", "body": b"x", "owner": STOPPED << 24}
        _insert(connection, "task_result", result | spent)
    for attempt in range(task.attempt):
        failed = {"task_id": task.id, "fence": attempt, "attempt": attempt + 1, "outcome": "retry"}
        _insert(connection, "task_attempt", failed | spent | {"error_class": task.error})
    if task.status is Status.DEAD:
        letter = {
            "task_id": task.id,
            "fence": task.attempt,
            "disposition": task.disposition,
            "error_class": task.error,
            "fingerprint": fingerprint(task.error, task.text),
            "error_text": task.text,
            "died_at": THEN,
        }
        _insert(connection, "dead_letter", letter)


def _insert_orders(connection: Connection, group: str) -> None:
    """Order the records of the waiting tasks, as if the relay had not come to them."""
    for destination, status in (("tasks", Status.PENDING), ("retry.30s", Status.RETRYING)):
        items = [Item(TASK, task.id, task.attempt) for task in TASKS if task.status is status]
        row = {
            "group_name": group,
            "destination": destination,
            "due_at": THEN,
            "items": pack(items),
        }
        _insert(connection, "outbox", row)


def _insert_counts(connection: Connection, *, dispositions: bool) -> None:
    """Write the counts of the tasks: some as they were written, some as sums of old ones."""
    for batch in (OPEN, CANCELLED, CLOSED, INBOX):
        loaded = sum(task.batch == batch for task in TASKS)
        _count(connection, batch, Status.PENDING, "loaded", loaded)
        done = [task for task in TASKS if (task.batch, task.status) == (batch, Status.SUCCEEDED)]
        costs = {"cost_micro": 100 * sum(task.id for task in done)}
        _count(connection, batch, Status.SUCCEEDED, "succeeded", len(done), route="main", **costs)
    cancelled = sum(task.status is Status.CANCELLED for task in TASKS)
    _count(connection, CANCELLED, Status.CANCELLED, "cancelled", cancelled + dispositions)
    for task in DEAD:
        of_death: dict[str, Any] = {"fingerprint": fingerprint(task.error, task.text)}
        if dispositions:
            of_death["disposition"] = task.disposition
        cost = 100 * task.id
        death = of_death | {"cost_micro": cost, "route": task.route}
        _count(connection, task.batch, Status.DEAD, task.error, 1, **death)
        if dispositions:  # another task died in the same way; its replay named no route
            for route, delta in ((task.route, 1), ("", -1)):
                other = of_death | {"route": route}
                _count(connection, task.batch, Status.DEAD, task.error, delta, **other)
    _count(connection, OPEN, Status.RETRYING, "SERVER", 1, route="main")
    if dispositions:  # a cancelled task was replayed, and runs
        _count(connection, CANCELLED, Status.CANCELLED, "cancelled", -1)


def _count(
    connection: Connection, batch: int, state: Status, outcome: str, delta: int, **more: Any
) -> None:
    row = {"batch_id": batch, "state": int(state), "outcome": outcome, "delta": delta}
    _insert(connection, "tally", {"fingerprint": bytes(16), "created_at": THEN} | row | more)


def _insert(connection: Connection, table: str, row: Mapping[str, Any]) -> None:
    connection.execute(tables.metadata.tables[table].insert().values(row))
