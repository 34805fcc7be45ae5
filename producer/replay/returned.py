"""Replays tasks whose dead letters other people's tools write back.

A letter names its task and the death that it tells of. If the task is still dead by that death, a
run replays it like a person's `replay`, with the same cap. A letter that is written back twice is
replayed once: a task that waits in a run or is no longer dead is left alone. A letter without
headers is identified by its line, and counts for its task's present death.

Letters that come one after the other join an open run, so that thousands make few runs.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select, update

from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AGENT, AuditKind
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.limits import CAP
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import batch, dead_line, replay_item, replay_run, task
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.states import Status
from docllm.schemas.text.wording import number_of

ACTOR = "dead letters written back"  # who ordered the runs
RUN_ITEMS = 10_000  # the most tasks of a run that further letters join


class Standing(Enum):
    """What a letter that was written back is to the ledger."""

    FOREIGN = "foreign"  # it names no task of the group, or one with another value
    PAST = "past"  # its task lives again, has ended otherwise, or waits for its replay
    DEAD = "dead"  # its task is dead of the death that the letter tells of
    CAPPED = "capped"  # the same, but it was replayed as often as is allowed
    BATCH_ENDED = "batch ended"  # the same, but its batch is cancelled or archived


@dataclass(frozen=True, slots=True)
class ReturnedLetter:
    """A letter that was written back.

    `fence` is None if nothing says of which death it tells, and `value` is None if it only points
    to the task's value, or is known to have it.
    """

    task_id: int
    fence: int | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LetterStanding:
    """A letter's standing, with its task's batch and id; both are empty for an unknown letter."""

    standing: Standing
    batch: str = ""
    key: str = ""


def standings_of(
    connection: Connection, group: str, letters: Sequence[ReturnedLetter]
) -> list[LetterStanding]:
    """Return the standing of each letter, without writing."""
    return _standings(connection, group, letters, _rows(connection, group, letters))


def redrive(
    connection: Connection, group: str, letters: Sequence[ReturnedLetter]
) -> list[LetterStanding]:
    """Store the dead tasks of these letters in a run; return the standing of each letter."""
    rows = _rows(connection, group, letters)
    standings = _standings(connection, group, letters, rows)
    fences = {
        letter.task_id: int(rows[letter.task_id].fence)
        for letter, standing in zip(letters, standings, strict=True)
        if standing.standing is Standing.DEAD
    }
    if fences:
        _store(connection, group, fences)
    return standings


def of_lines(
    connection: Connection, group: str, digests: Collection[bytes]
) -> dict[bytes, ReturnedLetter]:
    """Return the letters that came back as bare lines, by the digest of the line.

    The other lines are not those of a task of the group that has died.
    """
    query = select(dead_line.c.digest, dead_line.c.task_id).where(
        dead_line.c.group_name == group, dead_line.c.digest.in_(sorted(digests))
    )
    rows = connection.execute(query)
    return {bytes(row.digest): ReturnedLetter(row.task_id, None, None) for row in rows}


def _rows(connection: Connection, group: str, letters: Iterable[ReturnedLetter]) -> dict[int, Any]:
    of_task = (task.c.id, task.c.task_key, task.c.digest, task.c.status, task.c.fence)
    of_batch = (batch.c.name, batch.c.cancelled_at, batch.c.archived_at)
    query = (
        select(*of_task, task.c.replays, *of_batch)
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


def _standings(
    connection: Connection, group: str, letters: Sequence[ReturnedLetter], rows: Mapping[int, Any]
) -> list[LetterStanding]:
    waiting = _waiting(connection, group, rows)
    return [_standing_of(rows.get(letter.task_id), letter, waiting) for letter in letters]


def _standing_of(row: Any | None, letter: ReturnedLetter, waiting: set[int]) -> LetterStanding:
    if row is None or not _is_of(row, letter):
        return LetterStanding(Standing.FOREIGN)
    key = row.task_key.decode(errors="backslashreplace")
    return LetterStanding(_standing(row, letter, waiting), row.name, key)


def _is_of(row: Any, letter: ReturnedLetter) -> bool:
    return letter.value is None or bool(row.digest == digest(row.task_key, letter.value))


def _standing(row: Any, letter: ReturnedLetter, waiting: set[int]) -> Standing:
    is_of_death = letter.fence is None or row.fence == letter.fence
    if row.status != Status.DEAD or not is_of_death or row.id in waiting:
        return Standing.PAST
    if row.cancelled_at is not None or row.archived_at is not None:
        return Standing.BATCH_ENDED
    return Standing.DEAD if row.replays < CAP else Standing.CAPPED


def _store(connection: Connection, group: str, fences: Mapping[int, int]) -> None:
    """Store these tasks and their fences in an open run, or else in a new one."""
    run_id = _join_open_run(connection, group, fences)
    if run_id is None:
        run_id = _begin_run(connection, group, len(fences))
    items = [
        {"run_id": run_id, "kind": TASK, "item_id": task_id, "fence": fence}
        for task_id, fence in sorted(fences.items())
    ]
    insert_rows(connection, replay_item, items)
    audit.write(
        connection,
        group=group,
        actor=AGENT,
        action="redrive",
        kind=AuditKind.REPLAY,
        target=str(run_id),
        detail=f"replay {run_id} of group {group}: "
        f"{number_of(len(fences), 'dead letter')} written back",
        items=len(fences),
    )


def _join_open_run(connection: Connection, group: str, ids: Collection[int]) -> int | None:
    """Let these tasks join the newest open run for letters; return its id, None if none fits.

    The run's row stays locked, so it cannot end before its new items are there.
    """
    newest = (
        select(replay_run.c.id, replay_run.c.selection, replay_run.c.total)
        .where(
            replay_run.c.group_name == group,
            replay_run.c.ended_at.is_(None),
            replay_run.c.actor == ACTOR,
        )
        .order_by(replay_run.c.id.desc())
        .limit(1)
        .with_for_update()
    )
    row = connection.execute(newest).first()
    if row is None or row.total + len(ids) > RUN_ITEMS or _any_item(connection, row.id, ids):
        return None
    total = row.total + len(ids)
    request = orjson.loads(row.selection)
    text = _request(total, request["nonce"]).as_text()
    connection.execute(
        update(replay_run).where(replay_run.c.id == row.id).values(selection=text, total=total)
    )
    return int(row.id)


def _any_item(connection: Connection, run_id: int, ids: Collection[int]) -> bool:
    """Return whether a run has had one of these tasks before: it died again meanwhile."""
    query = select(replay_item.c.item_id).where(
        replay_item.c.run_id == run_id,
        replay_item.c.kind == TASK,
        replay_item.c.item_id.in_(sorted(ids)),
    )
    return connection.execute(query.limit(1)).first() is not None


def _begin_run(connection: Connection, group: str, total: int) -> int:
    """Store a new run, as it is before it is applied; return its id."""
    row = {
        "group_name": group,
        "actor": ACTOR,
        "selection": _request(total, secrets.token_hex(8)).as_text(),
        "stored_at": utc_now(),
        "total": total,
    }
    key = connection.execute(insert(replay_run).values(row)).inserted_primary_key
    return int(key[0]) if key else 0


def _request(total: int, nonce: str) -> ReplayRequest:
    """Return the request of a run for letters. Its items say which tasks it replays."""
    return ReplayRequest(Selection(limit=total), nonce=nonce)
