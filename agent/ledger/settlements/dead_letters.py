"""Writes the dead letters of a settle or of the reaper, with copies and sums of their tasks.

Each dead letter is stored with the digest of its task's line. By this digest, a line that another
tool writes back without headers is recognized, even after a replay.

A dead letter and the count of its death have the same route, model and sums. A replay takes back
exactly what the dead letter says, so no sum by route or model falls below zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select

from docllm.producer.ledger import tally
from docllm.schemas.ledger.bulk import insert_rows, merge_rows
from docllm.schemas.ledger.sql import Merge
from docllm.schemas.ledger.tables import batch, dead_letter, dead_line, task, task_attempt
from docllm.schemas.task.failures import UNTRIED

LetterRow = Mapping[str, Any]  # the columns of a dead letter

_NEWEST = Merge(greatest=("task_id",))  # of the tasks that died with one line
_SUMMED = tuple(task_attempt.c[name] for name in tally.SPENT)
_COPIED = (
    task.c.id,
    task.c.batch_id,
    task.c.type,
    task.c.tenant,
    task.c.replays,
    task.c.expires_at,
    task.c.digest,
    batch.c.group_name,
)
# This is built once, and runs only if tasks die.
_TASKS = (
    select(
        *_COPIED,
        func.count(case((task_attempt.c.error_class.not_in(UNTRIED), 1))).label("attempts"),
        *(func.sum(column).label(column.name) for column in _SUMMED),
    )
    .join(task_attempt, task_attempt.c.task_id == task.c.id)
    .join(batch, batch.c.id == task.c.batch_id)
    .where(task.c.id.in_(bindparam("ids", expanding=True)))
    .group_by(*_COPIED)
)


def write(connection: Connection, letters: Sequence[LetterRow]) -> dict[int, LetterRow]:
    """Write dead letters and return them whole, by task.

    The given columns say why a task died. The rest is copied from the task and summed over its
    attempts, which must be written before.
    """
    if not letters:
        return {}
    ids = sorted(letter["task_id"] for letter in letters)
    tasks = {row.id: row for row in connection.execute(_TASKS, {"ids": ids})}
    whole = [{**letter, **_of_task(tasks[letter["task_id"]])} for letter in letters]
    insert_rows(connection, dead_letter, whole)
    merge_rows(connection, dead_line, _lines(tasks.values()), _NEWEST)
    return {letter["task_id"]: letter for letter in whole}


def _lines(tasks: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows by which the lines of these tasks are recognized if they come back.

    They are in the order of their key, in which all transactions lock them.
    """
    newest: dict[tuple[str, bytes], int] = {}
    for row in tasks:
        key = row.group_name, row.digest
        newest[key] = max(row.id, newest.get(key, 0))
    return [
        {"group_name": group, "digest": digest, "task_id": newest[group, digest]}
        for group, digest in sorted(newest)
    ]


def _of_task(row: Any) -> LetterRow:
    return {
        "batch_id": row.batch_id,
        "type": row.type,
        "tenant": row.tenant,
        "replays": row.replays,
        "expires_at": row.expires_at,
        "attempts": row.attempts,
        # Some servers sum to decimals.
        **{name: int(getattr(row, name)) for name in tally.SPENT},
    }
