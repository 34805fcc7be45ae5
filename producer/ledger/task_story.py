"""Everything about one task or one quarantined record, for a person who asks why. Read only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select

from docllm.producer.ledger import hook_orders, joins, task_changes, task_locks, waiting_rows
from docllm.producer.ledger.claiming_agent import agent_in
from docllm.producer.ledger.quarantine import error_class
from docllm.producer.ledger.results.result_lines import attempts_of
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import (
    agent,
    batch,
    dead_letter,
    follow_up,
    quarantine,
    reply,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.failures import AttemptOutcome
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.owner import agent_of
from docllm.schemas.task.result.codec import EXPIRED
from docllm.schemas.task.states import WAITING, Status
from docllm.schemas.text.packed_text import text_of_packed

_NO_HEADERS = b"[]"
_CALLED = {"error": "error_text", "call_id": "trace_id", "release": "release_name"}  # in tables


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that did not succeed.

    `attempt` counts from 1, and again from 1 after a replay. Times are UTC without a zone;
    `cost_micro` is in millionths of the currency's unit, and `unsure_micro` is the estimated part
    of it. `unpriced` counts the calls whose cost is unknown. `reply` is the beginning of what the
    model said, if its answer could not be used or came too late. `agent` is the agent that was lost
    with the attempt; empty if none was. Nobody knows how long a lost attempt took.
    """

    attempt: int
    fence: int
    outcome: str
    error_class: str
    error: str
    call_id: str
    started_at: datetime
    duration_ms: int | None
    tokens_in: int
    tokens_out: int
    cost_micro: int
    tokens_cached: int = 0
    unsure_micro: int = 0
    unpriced: int = 0
    route: str = ""
    model: str = ""
    release: str = ""
    reply: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a dead task was given up, and the record that failed.

    `traceback` has the lines of code at which its last attempt failed, if that is known.
    """

    fence: int
    disposition: str
    error_class: str
    fingerprint: str
    error: str
    died_at: datetime
    origin_topic: str
    origin_partition: int
    origin_offset: int
    route: str = ""
    model: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The stored result of a successful attempt, without its body."""

    created_at: datetime
    model: str
    call_id: str
    duration_ms: int
    tokens_in: int
    tokens_out: int
    cost_micro: int
    tokens_cached: int = 0
    unsure_micro: int = 0
    unpriced: int = 0
    route: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """One task.

    `attempts` includes the successful attempt. `losses` counts the runs that were ever cut off by
    the end of their agents, and `lease_losses` those of lost agents since an attempt last counted.
    `history` has all other attempts, also those before a replay. `claimed_at` is when the task
    began to run, if it runs now, and `agent` the name of the agent that runs it. `ancestors` are
    the ids of its parent, its parent's parent, and so on; `children` are the tasks that it ordered,
    each with its `id` and `status`, as far as the ledger has noted them. `hooks` are those that are
    not done, in words, and `locks` those that it holds now. `expired` names what was deleted of it:
    `input`, `result`. `waits` says for what it waits in the ledger, in words. `overrides` run in
    place of fields of its line.
    """

    number: int
    key: str
    batch: str
    type: str
    tenant: str
    status: Status
    attempts: int
    max_attempts: int
    lease_losses: int
    losses: int
    replays: int
    fence: int
    created_at: datetime
    expires_at: datetime | None
    raw_key: bytes | None
    headers: bytes | None
    input: bytes
    letter: DeadLetter | None
    result: StoredResult | None
    history: tuple[PastAttempt, ...]
    claimed_at: datetime | None = None
    agent: str = ""
    ancestors: tuple[str, ...] = ()
    children: tuple[Mapping[str, str], ...] = ()
    hooks: tuple[str, ...] = ()
    locks: tuple[Mapping[str, Any], ...] = ()
    expired: tuple[str, ...] = ()
    waits: str = ""
    overrides: Overrides = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """One quarantined record; `cut` says that only the beginning of its value is kept."""

    number: int
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    cut: bool
    headers: bytes
    disposition: str
    error_class: str
    fingerprint: str
    error: str
    created_at: datetime
    replayed_at: datetime | None
    seen: int


def states(
    connection: Connection, group: str, key: str, batch_name: str | None
) -> list[tuple[str, Status]]:
    """Return the group's batches that contain a task of this id, with the task's state.

    With `batch_name`, only that batch is returned.
    """
    query = select(batch.c.name, task.c.status).join(task, task.c.batch_id == batch.c.id)
    query = query.where(batch.c.group_name == group, task.c.task_key == key.encode()).order_by(
        batch.c.id
    )
    if batch_name is not None:
        query = query.where(batch.c.name == batch_name)
    return [(row.name, Status(row.status)) for row in connection.execute(query)]


def story(connection: Connection, group: str, batch_name: str, key: str) -> Story | None:
    """Return everything about one task, None if it does not exist."""
    query = (
        select(task, batch.c.name, task_input.c.raw_key, task_input.c.headers, task_input.c.body)
        .join(batch, batch.c.id == task.c.batch_id)
        .outerjoin(task_input, task_input.c.task_id == task.c.id)
        .where(
            batch.c.group_name == group, batch.c.name == batch_name, task.c.task_key == key.encode()
        )
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    letter = _letter(connection, row.id)
    death = "" if letter is None else letter.error_class
    return Story(
        number=row.id,
        key=row.task_key.decode(errors="backslashreplace"),
        batch=row.name,
        type=row.type,
        tenant=row.tenant,
        status=Status(row.status),
        attempts=attempts_of(row.attempt, Status(row.status), death),
        max_attempts=row.max_attempts,
        lease_losses=row.lease_losses,
        losses=row.losses,
        replays=row.replays,
        fence=row.fence,
        created_at=row.created_at,
        expires_at=None if row.expires_at == NEVER_TIME else row.expires_at,
        raw_key=row.raw_key,
        headers=row.headers,
        input=row.body or b"",
        letter=letter,
        result=_result(connection, row.id),
        history=tuple(_history(connection, row.id)),
        claimed_at=row.claimed_at if row.status == Status.PROCESSING else None,
        agent=_agent(connection, row),
        ancestors=tuple(_ancestors(connection, row)),
        children=tuple(_children(connection, row.id)),
        waits=_waits(connection, row),
        hooks=tuple(hook_orders.of_task(connection, row.id)),
        locks=tuple(_locks(connection, group, row)),
        expired=tuple(_expired(connection, row)),
        overrides=task_changes.overrides(connection, [row.id]).get(row.id, {})
        if row.changed
        else {},
    )


def _waits(connection: Connection, row: Any) -> str:
    """Return for what a task waits in the ledger, in words; empty if it does not."""
    if row.status not in WAITING:
        return ""
    of_join = joins.text_of(connection, row.id, row.fence) if row.join_role else ""
    return of_join or waiting_rows.of_task(connection, row.id, row.fence)


def _expired(connection: Connection, row: Any) -> Iterator[str]:
    """Yield what an erasure has deleted of a task."""
    if row.body is None:
        yield "input"
    codec = select(task_result.c.codec).where(task_result.c.task_id == row.id)
    if connection.execute(codec).scalar() == EXPIRED:
        yield "result"


def _ancestors(connection: Connection, row: Any) -> Iterator[str]:
    """Yield the ids of the tasks that ordered each other, and at last this one, nearest first."""
    parent_id = row.parent_id
    for _ in range(row.depth):
        query = select(task.c.task_key, task.c.parent_id).where(task.c.id == parent_id)
        parent = connection.execute(query).one_or_none()
        if parent is None:
            return
        yield parent.task_key.decode(errors="backslashreplace")
        parent_id = parent.parent_id


def _locks(connection: Connection, group: str, row: Any) -> Sequence[Mapping[str, Any]]:
    """Return the locks of a task that runs; at every end of an attempt they are free."""
    if row.status != Status.PROCESSING:
        return ()
    return task_locks.of_claim(connection, group, row.id, row.owner)


def _children(connection: Connection, task_id: int) -> Iterator[Mapping[str, str]]:
    """Yield the tasks that a task ordered, the first one first; a task has at most 1,000."""
    query = (
        select(task.c.task_key, task.c.status)
        .join(follow_up, follow_up.c.task_id == task.c.id)
        .where(follow_up.c.parent_id == task_id)
        .order_by(follow_up.c.task_id)
    )
    for row in connection.execute(query):
        key, name = row.task_key.decode(errors="backslashreplace"), Status(row.status).name.lower()
        yield {"id": key, "status": name}


def _agent(connection: Connection, row: Any) -> str:
    """Return the name of the agent in which a task runs; empty if it does not run now."""
    if row.status != Status.PROCESSING:
        return ""
    name = select(agent.c.name).where(agent.c.id == agent_of(row.owner))
    return connection.execute(name).scalar() or ""


def _letter(connection: Connection, task_id: int) -> DeadLetter | None:
    row = connection.execute(
        select(dead_letter).where(dead_letter.c.task_id == task_id)
    ).one_or_none()
    if row is None:
        return None
    origin = (row.origin_topic, row.origin_partition, row.origin_offset)
    return DeadLetter(
        row.fence,
        row.disposition,
        row.error_class,
        bytes(row.fingerprint).hex(),
        row.error_text,
        row.died_at,
        *origin,
        row.route,
        row.model,
        text_of_packed(row.traceback),
    )


def _result(connection: Connection, task_id: int) -> StoredResult | None:
    query = select(*_columns(task_result, StoredResult)).where(task_result.c.task_id == task_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else StoredResult(*row)


def _columns(table: Table[Any], kind: type[PastAttempt | StoredResult]) -> list[Column[Any]]:
    """Return the columns of a class's fields, in their order, as far as the table has them."""
    names = (_CALLED.get(field.name, field.name) for field in fields(kind))
    return [table.c[name] for name in names if name in table.c]


def _history(connection: Connection, task_id: int) -> Sequence[PastAttempt]:
    said = select(reply.c.body).where(
        reply.c.task_id == task_attempt.c.task_id,
        reply.c.owner.in_((task_attempt.c.owner, task_attempt.c.lost_owner)),
    )
    lost = select(agent.c.name).where(agent.c.id == agent_in(task_attempt.c.lost_owner))
    texts = [func.coalesce(text.scalar_subquery(), "") for text in (said.limit(1), lost)]
    query = select(*_columns(task_attempt, PastAttempt), *texts)
    query = query.where(task_attempt.c.task_id == task_id).order_by(task_attempt.c.id)
    return [_past(row) for row in connection.execute(query)]


def _past(row: Any) -> PastAttempt:
    attempt = PastAttempt(row.attempt + 1, *row[1:])
    is_lost = attempt.outcome == AttemptOutcome.LOST
    return replace(attempt, duration_ms=None) if is_lost else attempt


def record(connection: Connection, group: str, number: int) -> QuarantinedRecord | None:
    """Return everything about one quarantined record, None if it does not exist."""
    query = select(quarantine).where(quarantine.c.group_name == group, quarantine.c.id == number)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return QuarantinedRecord(
        number=row.id,
        topic=row.topic,
        partition=row.part,
        offset=row.record_offset,
        key=row.record_key,
        value=row.record_value,
        cut=row.value_digest is not None,
        headers=row.headers or _NO_HEADERS,
        disposition=row.disposition,
        error_class=error_class(row.disposition),
        fingerprint=bytes(row.fingerprint or b"").hex(),
        error=row.error_text,
        created_at=row.created_at,
        replayed_at=row.replayed_at,
        seen=row.seen,
    )
