"""Finds the dead letters on their topic that are no longer needed.

Read only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, exists, or_, select

from docllm.schemas.ledger.tables import archive, batch, dead_letter, quarantine, task, task_input
from docllm.schemas.task.states import Status


@dataclass(frozen=True, slots=True)
class TopicLetter:
    """A dead letter of a task as its headers name it."""

    batch: str
    task_id: int
    fence: int


def spent(
    connection: Connection, group: str, letters: Collection[TopicLetter]
) -> Collection[TopicLetter]:
    """Return the letters that may be deleted.

    A letter may be deleted if its task was replayed since, if an archive has the task as it died,
    if its batch was purged, or if its input was deleted on purpose.
    """
    rows = _rows(connection, group, {letter.task_id for letter in letters})
    archived = select(batch.c.name).where(
        batch.c.group_name == group,
        batch.c.name.in_(sorted({letter.batch for letter in letters})),
        batch.c.archived_at.is_not(None),
    )
    gone = set(connection.execute(archived).scalars())
    return {letter for letter in letters if _is_spent(letter, rows, gone)}


def spent_records(connection: Connection, group: str, numbers: Collection[int]) -> Collection[int]:
    """Return those of these quarantined records that became tasks, or whose value was erased."""
    query = select(quarantine.c.id).where(
        quarantine.c.group_name == group,
        quarantine.c.id.in_(sorted(numbers)),
        quarantine.c.replayed_at.is_not(None),
    )
    return set(connection.execute(query).scalars())


def _rows(connection: Connection, group: str, ids: Collection[int]) -> Mapping[int, int | None]:
    """Return the fence of the death that needs its letter, by task; None if none does."""
    body = exists().where(task_input.c.task_id == task.c.id)
    held = exists().where(
        archive.c.batch_id == task.c.batch_id,
        archive.c.verified_at.is_not(None),
        archive.c.created_at >= dead_letter.c.died_at,
    )
    query = (
        select(task.c.id, task.c.status, task.c.fence, or_(held, ~body).label("spent"))
        .join(batch, batch.c.id == task.c.batch_id)
        .outerjoin(dead_letter, dead_letter.c.task_id == task.c.id)
        .where(task.c.id.in_(sorted(ids)), batch.c.group_name == group)
    )
    return {
        row.id: row.fence if row.status == Status.DEAD and not row.spent else None
        for row in connection.execute(query)
    }


def _is_spent(letter: TopicLetter, rows: Mapping[int, int | None], gone: Collection[str]) -> bool:
    if letter.task_id not in rows:
        return letter.batch in gone
    fence = rows[letter.task_id]
    return fence is None or letter.fence < fence
