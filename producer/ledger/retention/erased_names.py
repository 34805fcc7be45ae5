"""Erases what the ledger keeps of a person beside tasks: names of locks, and reports of agents."""

import orjson
from sqlalchemy import ColumnElement, Connection, Table, delete, exists, update

from docllm.producer.ledger.retention.erasure_rows import Subject
from docllm.schemas.ledger import agent_rows
from docllm.schemas.ledger.tables import agent, lock_wait, resource_lock, task
from docllm.schemas.task.states import Status


def erase_locks(connection: Connection, group: str, subject: Subject) -> None:
    """Delete the waits and locks that have the tenant or id in their names, and that nobody uses.

    Agents delete each of them a day after its last use. A lock that is made anew has a higher
    fence, since that comes from the time.
    """
    has_waits = exists().where(
        lock_wait.c.group_name == resource_lock.c.group_name,
        lock_wait.c.name == resource_lock.c.name,
    )
    connection.execute(delete(lock_wait).where(*_unused(lock_wait, group, subject)))
    connection.execute(
        delete(resource_lock).where(*_unused(resource_lock, group, subject), ~has_waits)
    )


def erase_reports(connection: Connection, group: str, subject: Subject) -> None:
    """Empty the last reports of ended agents that name the tenant or id."""
    text = orjson.dumps(_text(subject))[1:-1].decode()
    names_it = agent.c.report.contains(text, autoescape=True)
    ended = agent_rows.gone()
    of_subject = update(agent).where(agent.c.group_name == group, ended, names_it)
    connection.execute(of_subject.values(report=None))


def _unused(table: Table, group: str, subject: Subject) -> list[ColumnElement[bool]]:
    """Return the conditions for rows that name the subject and are no part of a running claim."""
    is_used = exists().where(
        task.c.id == table.c.task_id,
        task.c.owner == table.c.owner,
        task.c.status == int(Status.PROCESSING),
    )
    named = table.c.name.contains(_text(subject), autoescape=True)
    return [table.c.group_name == group, named, ~is_used]


def _text(subject: Subject) -> str:
    return subject.key or subject.tenant or ""
