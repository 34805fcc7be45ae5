"""Erases what is stored of one person: of all tasks of a tenant, or of the tasks of one id.

A task's row stays, final, with a made-up id and the digest of its line: so a record of it that
comes late is `done` and is not quarantined. Counts, times and costs stay too.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, delete, func, select, update

from docllm.producer.ledger import cancel, tally
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.audit import write as write_audit
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import (
    archive,
    batch,
    dead_letter,
    dead_line,
    follow_up,
    guard,
    hook,
    quarantine,
    reply,
    result_note,
    task,
    task_attempt,
    task_change,
    task_input,
    task_result,
    task_state,
)
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.line.parsing import is_exact, parse_again
from docllm.schemas.task.result.codec import EXPIRED, POINTER
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.task.states import OPEN
from docllm.schemas.text.untrusted import contained
from docllm.schemas.text.wording import number_of

ERASED = b"erased:"  # how the made-up id of an erased task begins
REASON = "erased"  # stands for the reason of a guard
RECORDS = 50  # records of the quarantine in memory at once
_NEW_KEY = update(task).where(task.c.id == bindparam("of_id"))


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an erasure: a tenant, or one id, which may occur in several batches."""

    tenant: str | None = None
    key: str | None = None
    batch: str | None = None


@dataclass(slots=True)
class Erased:
    """What was erased: tasks and quarantined records.

    `outputs` are the URIs of results that lie outside of the ledger, and are still there.

    `running` are tasks that run and keep their data until they have ended. `unread` are numbers of
    quarantined records that are no JSON and contain the name or id: a person must look.
    """

    tasks: int = 0
    records: int = 0
    outputs: list[str] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)


def batches(connection: Connection, group: str, subject: Subject) -> dict[int, str]:
    """Return the batches that have or had tasks of the subject, by id; purged ones included.

    For an id these are the batches that have a task of it now.
    """
    query = select(batch.c.id, batch.c.name).where(batch.c.group_name == group)
    if subject.batch is not None:
        query = query.where(batch.c.name == subject.batch)
    if subject.tenant is not None:
        of_tenant = tally.counts(lambda column: [column["tenant"] == subject.tenant])
        query = query.where(batch.c.id.in_(select(of_tenant.c.batch_id)))
    else:
        key = (subject.key or "").encode()
        of_key = select(task.c.id).where(task.c.batch_id == batch.c.id, task.c.task_key == key)
        query = query.where(of_key.exists())
    return {row.id: row.name for row in connection.execute(query.order_by(batch.c.id))}


def count(connection: Connection, subject: Subject, batch_ids: Sequence[int]) -> int:
    """Return how many tasks of the subject were ever loaded; of an id, how many there are."""
    if subject.key is not None:
        return len(ids_of_key(connection, subject, batch_ids))
    loaded = tally.counts(
        lambda column: [
            column["batch_id"].in_(batch_ids),
            column["tenant"] == subject.tenant,
            column["outcome"] == TallyOutcome.LOADED,
        ]
    )
    return int(connection.execute(select(func.sum(loaded.c.delta))).scalar() or 0)


def ids_of_key(connection: Connection, subject: Subject, batch_ids: Sequence[int]) -> list[int]:
    """Return the tasks of an id and all that they ordered, the last one first.

    Follow-ups come before their parent: if the erasure is interrupted, the parent still leads to
    the rest.
    """
    key = (subject.key or "").encode()
    query = select(task.c.id).where(task.c.batch_id.in_(batch_ids), task.c.task_key == key)
    ids = level = set(connection.execute(query).scalars())
    while level:
        ordered = select(follow_up.c.task_id).where(follow_up.c.parent_id.in_(sorted(level)))
        level = set(connection.execute(ordered).scalars()) - ids
        ids = ids | level
    return sorted(ids, reverse=True)


def ids_of_tenant(
    connection: Connection, subject: Subject, batch_id: int, ids: tuple[int, int], most: int
) -> tuple[int, list[int]]:
    """Return the tenant's tasks among the next `most` tasks of any batch, and where to go on."""
    first_id, last_id = ids
    columns = (task.c.id, task.c.batch_id, task.c.tenant)
    page = select(*columns).where(task.c.id.between(first_id, last_id)).order_by(task.c.id)
    rows = connection.execute(page.limit(most)).all()
    own = [row.id for row in rows if (row.batch_id, row.tenant) == (batch_id, subject.tenant)]
    return (rows[-1].id + 1 if rows else last_id + 1), own


def audit(connection: Connection, group: str, actor: str, subject: Subject, tasks: int) -> None:
    """Record the erasure, without what is erased."""
    kind = "one tenant" if subject.tenant is not None else "one id"
    write_audit(
        connection,
        group=group,
        actor=actor,
        action="erase",
        kind=AuditKind.TASK,
        target=kind,
        detail=f"erased {number_of(tasks, 'task')} of {kind}",
        items=tasks,
    )


def erase(connection: Connection, group: str, ids: Sequence[int], *, tenant: bool) -> Erased:
    """Erase what is stored of these tasks; with `tenant`, the names of their tenants too.

    Waiting tasks are cancelled. Running tasks are left and returned in `running`. Without `tenant`,
    tasks that lead to follow-ups that are not erased yet are also left, and are also returned in
    `running`.
    """
    cancel.cancel_waiting(connection, ids)
    lock = select(task.c.id, task.c.status, task.c.digest).where(task.c.id.in_(sorted(ids)))
    rows = connection.execute(lock.order_by(task.c.id).with_for_update()).all()
    unerased = {row.id for row in rows if row.status in OPEN}
    if not tenant:
        unerased = _leading(connection, ids, unerased)
    final = [row for row in rows if row.id not in unerased]
    running = sorted(unerased, reverse=True)
    if not final:
        return Erased(running=running)
    final_ids = [row.id for row in final]
    outputs = _outputs(connection, final_ids)
    _empty(connection, final_ids)
    _forget(connection, group, final, tenant=tenant)
    return Erased(tasks=len(final), outputs=outputs, running=running)


def _leading(connection: Connection, ids: Sequence[int], running: set[int]) -> set[int]:
    """Return the tasks that cannot be erased yet.

    These are the running tasks, follow-ups outside this page, and all tasks of this page that lead
    to one of these. The caller has locked the tasks, so every settle that ordered follow-ups has
    committed.
    """
    query = (
        select(follow_up.c.parent_id, task.c.id, task.c.task_key)
        .join(task, task.c.id == follow_up.c.task_id)
        .where(follow_up.c.parent_id.in_(sorted(ids)))
    )
    rows = [row for row in connection.execute(query) if not row.task_key.startswith(ERASED)]
    unerased = running.union(row.id for row in rows if row.id not in ids)
    while parents := {row.parent_id for row in rows if row.id in unerased} - unerased:
        unerased |= parents
    return unerased


def erase_records(
    connection: Connection, group: str, subject: Subject, after: int
) -> tuple[int | None, Erased]:
    """Erase the subject's quarantined records among the next ones; return where to go on."""
    query = (
        select(quarantine.c.id, quarantine.c.record_key, quarantine.c.record_value)
        .where(quarantine.c.group_name == group, quarantine.c.id > after)
        .order_by(quarantine.c.id)
        .limit(RECORDS)
    )
    rows = connection.execute(query).all()
    erased = Erased()
    own = []
    for row in rows:
        match = _is_of(subject, row.record_key, row.record_value)
        if match:
            own.append(row.id)
        elif match is None:
            erased.unread.append(row.id)
    if own:
        empty = {"record_key": None, "record_value": None, "headers": None, "error_text": ""}
        of_record = update(quarantine).where(quarantine.c.id.in_(own))
        connection.execute(of_record.values(**empty, value_digest=None, replayed_at=utc_now()))
    erased.records = len(own)
    return (rows[-1].id if len(rows) == RECORDS else None), erased


def erase_reasons(connection: Connection, batch_ids: Sequence[int]) -> None:
    """Erase the reasons of these batches' guards: each is the text of some task's failure.

    Cause and state of a guard stay.
    """
    of_batches = update(guard).where(guard.c.batch_id.in_(batch_ids), guard.c.reason != "")
    connection.execute(of_batches.values(reason=REASON))


def archives(connection: Connection, batch_ids: Sequence[int]) -> list[str]:
    """Return where archives of these batches lie."""
    query = select(archive.c.uri).where(archive.c.batch_id.in_(batch_ids)).distinct()
    return sorted(connection.execute(query).scalars())


def _outputs(connection: Connection, ids: Sequence[int]) -> list[str]:
    """Return the objects with results of these tasks, copies at the names in their lines too."""
    query = (
        select(task_result.c.body, task_input.c.body.label("line"))
        .outerjoin(task_input, task_input.c.task_id == task_result.c.task_id)
        .where(task_result.c.task_id.in_(ids), task_result.c.codec == POINTER)
    )
    uris = []
    for row in connection.execute(query):
        try:
            with contained():
                uris.append(OutputPointer.of_stored(row.body).uri)
                own = parse_again(row.line).output_uri
        except Exception:  # noqa: BLE001, S112 - a damaged pointer or line leads nowhere
            continue
        if is_exact(own):
            uris.append(str(own))
    return uris


def _empty(connection: Connection, ids: Sequence[int]) -> None:
    """Delete inputs, notes, refused answers, and results' bodies; times, tokens and cost stay."""
    emptied = update(task_result).where(task_result.c.task_id.in_(ids))
    connection.execute(emptied.values(codec=EXPIRED, body=b""))
    for table in (result_note, reply, task_input, task_change, task_state):
        connection.execute(delete(table).where(table.c.task_id.in_(ids)))


def _forget(connection: Connection, group: str, rows: Sequence[Any], *, tenant: bool) -> None:
    """Empty the texts of tasks, and give them made-up ids."""
    ids = [row.id for row in rows]
    no_tenant = {"tenant": ""} if tenant else {}
    no_text = {"error_text": "", "trace_id": ""}
    connection.execute(
        update(task_result).where(task_result.c.task_id.in_(ids)).values(trace_id="")
    )
    connection.execute(update(task_attempt).where(task_attempt.c.task_id.in_(ids)).values(no_text))
    letters = update(dead_letter).where(dead_letter.c.task_id.in_(ids))
    connection.execute(
        letters.values(error_text="", traceback=None, provider_error=None, **no_tenant)
    )
    lines = delete(dead_line).where(
        dead_line.c.group_name == group,
        dead_line.c.digest.in_([row.digest for row in rows]),
        dead_line.c.task_id.in_(ids),
    )
    connection.execute(lines)
    connection.execute(delete(hook).where(hook.c.task_id.in_(ids)))
    keys = [
        {"of_id": task_id, "new_key": ERASED + b"%d:%s" % (task_id, secrets.token_hex(4).encode())}
        for task_id in ids
    ]
    connection.execute(_NEW_KEY.values(task_key=bindparam("new_key"), **no_tenant), keys)


def _is_of(subject: Subject, key: bytes | None, value: bytes | None) -> bool | None:
    """Return whether a record is the subject's; None if it may be, and cannot be read."""
    names = ("tenant",) if subject.key is None else ("id", "custom_id", "key")
    wanted = subject.tenant if subject.key is None else subject.key
    sought = (wanted or "").encode()
    if subject.key is not None and key == sought:
        return True
    line = _json(value)
    if isinstance(line, dict):
        return any(line.get(name) == wanted for name in names)
    return None if sought in (value or b"") else False


def _json(value: bytes | None) -> Any:
    """Return the value as JSON; None if it is none, or too much for the parser."""
    try:
        with contained():
            return orjson.loads(value or b"null")
    except Exception:  # noqa: BLE001 - strangers wrote it
        return None
