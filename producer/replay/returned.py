"""Replays tasks whose dead letters other people's tools write back.

A letter names its task and the death that it tells of. If the task is still dead of that death, a
run of its own replays it, as a person's `replay` would, with the same cap. Twice written is once
replayed: a task that waits in a run, or is dead no more, is left alone.

Tested by tests/contract/test_ledger_returned.py.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Connection, insert, select

from producer.ledger import audit
from producer.ledger.audit import AGENT, AuditKind
from producer.ledger.outbox import TASK
from producer.ledger.replay_runs import ItemState, ReplayRequest
from producer.ledger.selection import Selection
from producer.limits import CAP
from schemas.ledger.bulk import insert_rows
from schemas.ledger.sql import utc_now
from schemas.ledger.tables import batch, replay_item, replay_run, task
from schemas.task.envelope import digest
from schemas.task.states import Status

ACTOR = "dead letters written back"  # of the runs


class Standing(Enum):
    """What a letter that was written back is to the ledger."""

    STRANGER = "stranger"  # it names no task of the group, or one with another value
    PAST = "past"  # its task lives again, has ended otherwise, or waits for its replay
    DEAD = "dead"  # its task is dead of the death that the letter tells of
    CAPPED = "capped"  # the same, but it was replayed as often as is allowed
    CLOSED = "closed"  # the same, but its batch is cancelled


@dataclass(frozen=True, slots=True)
class ReturnedLetter:
    """A letter that was written back; `value` is None if it only points to the task's value."""

    task_id: int
    fence: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LetterVerdict:
    """The standing of a letter, and the batch and id of its task, both empty for a stranger."""

    standing: Standing
    batch: str = ""
    key: str = ""


def judge(
    connection: Connection, group: str, letters: Sequence[ReturnedLetter]
) -> list[LetterVerdict]:
    """Return a verdict for each letter, without writing."""
    rows = _rows(connection, group, letters)
    waiting = _waiting(connection, group, rows)
    return [_verdict(rows.get(letter.task_id), letter, waiting) for letter in letters]


def redrive(
    connection: Connection, group: str, letters: Sequence[ReturnedLetter]
) -> list[LetterVerdict]:
    """Store a run for the dead tasks of each batch; return a verdict for each letter."""
    verdicts = judge(connection, group, letters)
    tasks_of: dict[str, dict[int, tuple[int, str]]] = {}
    for letter, verdict in zip(letters, verdicts, strict=True):
        if verdict.standing is Standing.DEAD:
            tasks_of.setdefault(verdict.batch, {})[letter.task_id] = letter.fence, verdict.key
    for name, tasks in sorted(tasks_of.items()):
        _store(connection, group, name, tasks)
    return verdicts


def _rows(connection: Connection, group: str, letters: Iterable[ReturnedLetter]) -> dict[int, Any]:
    columns = (task.c.id, task.c.task_key, task.c.digest, task.c.status, task.c.fence)
    of_batch = (task.c.replays, batch.c.name, batch.c.cancelled_at)
    query = (
        select(*columns, *of_batch)
        .join(batch, batch.c.id == task.c.batch_id)
        .where(
            task.c.id.in_(sorted({letter.task_id for letter in letters})),
            batch.c.group_name == group,
        )
    )
    return {row.id: row for row in connection.execute(query).all()}


def _waiting(connection: Connection, group: str, ids: Iterable[int]) -> set[int]:
    """Return which of these tasks wait in a run that has not ended."""
    query = (
        select(replay_item.c.item_id)
        .join(replay_run, replay_run.c.id == replay_item.c.run_id)
        .where(
            replay_run.c.group_name == group,
            replay_run.c.ended_at.is_(None),
            replay_item.c.kind == TASK,
            replay_item.c.item_id.in_(sorted(ids)),
            replay_item.c.state == int(ItemState.WAITS),
        )
    )
    return set(connection.execute(query).scalars())


def _verdict(row: Any | None, letter: ReturnedLetter, waiting: set[int]) -> LetterVerdict:
    if row is None or not _is_of(row, letter):
        return LetterVerdict(Standing.STRANGER)
    key = row.task_key.decode(errors="backslashreplace")
    return LetterVerdict(_standing(row, letter, waiting), row.name, key)


def _is_of(row: Any, letter: ReturnedLetter) -> bool:
    return letter.value is None or bool(row.digest == digest(row.task_key, letter.value))


def _standing(row: Any, letter: ReturnedLetter, waiting: set[int]) -> Standing:
    if row.status != Status.DEAD or row.fence != letter.fence or row.id in waiting:
        return Standing.PAST
    if row.cancelled_at is not None:
        return Standing.CLOSED
    return Standing.DEAD if row.replays < CAP else Standing.CAPPED


def _store(
    connection: Connection, group: str, name: str, tasks: dict[int, tuple[int, str]]
) -> None:
    """Store a run with all its items, as it is before it is applied."""
    keys = [key for _, key in tasks.values()]
    selection = (
        Selection(batch=name, key=keys[0])
        if len(keys) == 1
        else Selection(batch=name, limit=len(keys))
    )
    request = ReplayRequest(selection, nonce=secrets.token_hex(8))
    row = {
        "group_name": group,
        "actor": ACTOR,
        "selection": request.as_text(),
        "stored_at": utc_now(),
        "total": len(tasks),
    }
    key = connection.execute(insert(replay_run).values(row)).inserted_primary_key
    run_id = int(key[0]) if key else 0
    items = [
        {"run_id": run_id, "kind": TASK, "item_id": task_id, "fence": fence}
        for task_id, (fence, _) in sorted(tasks.items())
    ]
    insert_rows(connection, replay_item, items)
    audit.write(
        connection,
        group=group,
        actor=AGENT,
        action="redrive",
        kind=AuditKind.REPLAY,
        target=str(run_id),
        detail=f"replay {run_id} of group {group}: {len(tasks)} dead letters written back, "
        f"{selection}",
        items=len(tasks),
    )
