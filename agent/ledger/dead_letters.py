"""Writes the dead letters of a settle or of the reaper, with copies and sums of their tasks.

A dead letter and the count of its death have the same route, model and sums. A replay takes back
exactly what the dead letter says, so no sum by route or model falls below zero.

Tested by tests/contract/test_ledger_ends.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select

from schemas.ledger.bulk import insert_rows
from schemas.ledger.tables import dead_letter, task, task_attempt
from schemas.task.failures import UNTRIED

Letter = Mapping[str, Any]  # the columns of a dead letter

_SUMMED = (task_attempt.c.tokens_in, task_attempt.c.tokens_out, task_attempt.c.cost_micro)
_COPIED = (
    task.c.id,
    task.c.batch_id,
    task.c.type,
    task.c.tenant,
    task.c.replays,
    task.c.expires_at,
)
# This is built once, and runs only if tasks die.
_TASKS = (
    select(
        *_COPIED,
        func.count(case((task_attempt.c.error_class.not_in(UNTRIED), 1))).label("attempts"),
        *(func.sum(column).label(column.name) for column in _SUMMED),
    )
    .join(task_attempt, task_attempt.c.task_id == task.c.id)
    .where(task.c.id.in_(bindparam("ids", expanding=True)))
    .group_by(*_COPIED)
)


def write(connection: Connection, letters: Sequence[Letter]) -> dict[int, Letter]:
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
    return {letter["task_id"]: letter for letter in whole}


def _of_task(row: Any) -> Letter:
    return {
        "batch_id": row.batch_id,
        "type": row.type,
        "tenant": row.tenant,
        "replays": row.replays,
        "expires_at": row.expires_at,
        "attempts": row.attempts,
        # Some servers sum to decimals.
        "tokens_in": int(row.tokens_in),
        "tokens_out": int(row.tokens_out),
        "cost_micro": int(row.cost_micro),
    }
