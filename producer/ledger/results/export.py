"""Writes the results of batches as lines, in the order of loading, in bounded memory.

It reads the ledger and changes nothing. Pages follow the primary key, each in a transaction of its
own, so an export of millions holds no snapshot and no lock.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import orjson
from sqlalchemy import BindParameter, Connection, Select, and_, bindparam, case, func, select

from docllm.producer.ledger import store, tally, task_changes
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.results.pointed_results import Fetch, follow, no_outputs
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    Letter,
    Result,
    expired,
    with_unreadable_output,
)
from docllm.schemas.codes import Code
from docllm.schemas.ledger.by_ids import execute_by_ids
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    result_note,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.provider_error import provider_error_of_packed
from docllm.schemas.task.result.codec import EXPIRED
from docllm.schemas.task.states import OPEN, Status
from docllm.schemas.text.untrusted import contained, describe_error
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE = 500
_PAGE_BYTES = 8 << 20
# Only tasks from records have headers. For a batch that was loaded back from dead letters, the
# origin is unknown.
_OF_INBOX = and_(task_input.c.headers.is_not(None), batch.c.note != store.Origin.LETTERS.value)

_PARENT = task.alias("parent")
# A result's reader needs the line only if the line has a schema.
_LINE = case((func.instr(task_input.c.body, b'"schema"') > 0, task_input.c.body))

_STATUSES = {int(status): status for status in Status}
_OF_RESULT = (
    "codec", "body", "model", "trace_id", "created_at", "route",
    *tally.SPENT,
)  # fmt: skip
_NOTHING = (0,) * len(tally.SPENT)
_OF_LETTER = ("error_class", "error_text", "died_at", "route", "provider_error")

# These statements are built once.
_IN_RANGE = task.c.id.between(bindparam("first_id"), bindparam("last_id"))
_OF_BATCH = task.c.batch_id == bindparam("of_batch")
_SIZES = (
    select(
        task.c.id,
        task.c.batch_id,
        func.coalesce(func.length(task_input.c.body), 0)
        + func.coalesce(func.length(task_result.c.body), 0),
    )
    .select_from(task)
    .outerjoin(task_input, and_(task_input.c.task_id == task.c.id, _OF_BATCH))
    .outerjoin(task_result, and_(task_result.c.task_id == task.c.id, _OF_BATCH))
    .where(_IN_RANGE)
    .order_by(task.c.id)
    .limit(bindparam("most"))
)
_STATES = _SIZES.add_columns(task.c.status, task_result.c.created_at)
_ENDED_TASKS = (
    select(
        task.c.id,
        task.c.task_key,
        task.c.status,
        task.c.attempt,
        _LINE.label("line"),
        _OF_INBOX.label("of_inbox"),
        _PARENT.c.task_key.label("parent_key"),
        task.c.losses,
        task.c.changed,
        *[task_result.c[name].label(f"result_{name}") for name in _OF_RESULT],
        *[dead_letter.c[name] for name in _OF_LETTER],
    )
    .select_from(task)
    .with_hint(task, "FORCE INDEX (PRIMARY)", "mysql")
    .outerjoin(task_input, task_input.c.task_id == task.c.id)
    .outerjoin(batch, batch.c.id == task.c.batch_id)
    .outerjoin(task_result, task_result.c.task_id == task.c.id)
    .outerjoin(dead_letter, dead_letter.c.task_id == task.c.id)
    .outerjoin(_PARENT, _PARENT.c.id == task.c.parent_id)
)
_ENDED = _ENDED_TASKS.where(_IN_RANGE, _OF_BATCH).order_by(task.c.id)
_IDS: BindParameter[int] = bindparam("ids", expanding=True)
_ENDED_OF_IDS = _ENDED_TASKS.where(task.c.id.in_(_IDS))
_SPENT = (
    select(
        task_attempt.c.task_id,
        *[func.sum(task_attempt.c[name]) for name in tally.SPENT],
    )
    .where(task_attempt.c.task_id.in_(_IDS))
    .group_by(task_attempt.c.task_id)
)
_CALL_IDS = (
    select(task_attempt.c.task_id, task_attempt.c.trace_id)
    .where(task_attempt.c.task_id.in_(_IDS))
    .order_by(task_attempt.c.id)
)
_NOTES = (
    select(result_note.c.task_id, result_note.c.kind, result_note.c.detail)
    .where(result_note.c.task_id.in_(_IDS))
    .order_by(result_note.c.task_id, result_note.c.kind)
)


class Read(Protocol):
    """Runs one reading function, and retries it if needed: `Database.run_singly`."""

    def __call__(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tasks of a batch an export has; None bounds nothing.

    `stored` bounds the time at which the task's result was stored: after the first time, and not
    after the second.
    """

    task_id: int | None = None
    statuses: frozenset[Status] | None = None
    stored: tuple[datetime, datetime] | None = None

    def has(self, status: int, stored_at: datetime | None) -> bool:
        """Return whether the export has a task; `stored_at` is None if it has no result."""
        if self.statuses is not None and status not in self.statuses:
            return False
        if self.stored is None:
            return True
        return stored_at is not None and self.stored[0] < stored_at <= self.stored[1]


ALL = Selection()


def export(
    read: Read,
    batches: Mapping[int, Selection],
    line_of: Callable[[ExportedTask], T | None],
    write: Callable[[T], object],
    fetch: Fetch = no_outputs,
    note_lost: Callable[[str], None] = log.warning,
) -> dict[int, Counter[Status]]:
    """Write what `line_of` makes of each task; return by batch how many tasks are in each state.

    `fetch` reads results outside the ledger; `note_lost` hears of those that are not there.
    """
    counts: dict[int, Counter[Status]] = {}
    for batch_id, selection in batches.items():
        statuses = counts[batch_id] = Counter()
        for status, line in lines(read, batch_id, selection, line_of, fetch, note_lost):
            statuses[status] += 1
            if line:
                write(line)
    return counts


def lines(
    read: Read,
    batch_id: int,
    selection: Selection,
    line_of: Callable[[ExportedTask], T | None],
    fetch: Fetch = no_outputs,
    note_lost: Callable[[str], None] = log.warning,
) -> Iterator[tuple[Status, T | None]]:
    """Yield the state of each task of a batch, with what `line_of` makes of it."""
    for ended in follow(_tasks(read, batch_id, selection), fetch, note_lost):
        yield ended.status, written(ended, line_of)


def one_task(connection: Connection, task_id: int) -> ExportedTask:
    """Return one task as an export sees it, with the pointer to its result if it has one."""
    batch_id = connection.execute(select(task.c.batch_id).where(task.c.id == task_id)).scalar_one()
    (ended,) = _ended(connection, batch_id, [task_id])
    return ended


def written(ended: ExportedTask, line_of: Callable[[ExportedTask], T | None]) -> T | None:
    """Return the line of a task, or a line that reports that its stored end cannot be read."""
    try:
        with contained():
            return line_of(ended)
    except Exception as error:  # noqa: BLE001 - one task must not end the export
        log.warning(
            "the result of task %d cannot be written: %s",
            ended.task_id,
            one_line(describe_error(error)),
            extra={"code": Code.RESULT_UNREADABLE},
        )
        return line_of(with_unreadable_output(ended, error))


def with_key(connection: Connection, group: str, key: bytes) -> dict[int, int]:
    """Return by batch the id of the group's task with this key."""
    query = select(task.c.batch_id, task.c.id).join(batch, batch.c.id == task.c.batch_id)
    rows = connection.execute(query.where(batch.c.group_name == group, task.c.task_key == key))
    return {row.batch_id: row.id for row in rows}


def unfinished(counts: Counter[Status]) -> int:
    """Return how many of the counted tasks are not final."""
    return sum(counts[status] for status in OPEN)


def _tasks(read: Read, batch_id: int, selection: Selection = ALL) -> Iterator[ExportedTask]:
    only = selection.task_id
    within = None if only is None else (only, only)
    for ids in id_groups(read, batch_id, within, selection):
        tasks = read(partial(_ended, batch_id=batch_id, ids=ids))
        if selection.statuses is not None:  # a task may have changed its state since
            tasks = [ended for ended in tasks if ended.status in selection.statuses]
        yield from tasks


def id_groups(
    read: Read,
    batch_id: int,
    within: tuple[int, int] | None = None,
    selection: Selection = ALL,
) -> Iterator[list[int]]:
    """Yield the ids of a batch's tasks in order, in pages that take little memory.

    `within` bounds the ids; without it they are all of the batch.
    """
    next_id, last_id = within or read(partial(id_range, batch_id=batch_id))
    is_all = selection == ALL
    statement = _SIZES if is_all else _STATES
    while next_id <= last_id:
        ids = {"of_batch": batch_id, "first_id": next_id, "last_id": last_id, "most": _PAGE}
        page = read(partial(_page, statement=statement, values=ids))
        if not page:
            return
        next_id = page[-1][0] + 1
        if not is_all:
            page = [row for row in page if selection.has(row.status, row.created_at)]
        yield from _groups([(row[0], row[2]) for row in page if row[1] == batch_id])


def _page(
    connection: Connection, statement: Select[Any], values: Mapping[str, int]
) -> Sequence[Any]:
    """Return ids, batches and sizes along the primary key, and states if `statement` has them.

    The query finds rows by their ids alone: the batch would tempt the server to sort the whole
    batch for each page. Sizes are stored bytes, 0 for tasks of other batches.
    """
    return connection.execute(statement, values).all()


def _groups(sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    group: list[int] = []
    group_bytes = 0
    for key, size in sizes:
        if group and group_bytes + size > _PAGE_BYTES:
            yield group
            group, group_bytes = [], 0
        group.append(key)
        group_bytes += size
    if group:
        yield group


def _ended(connection: Connection, batch_id: int, ids: Sequence[int]) -> list[ExportedTask]:
    """Return the tasks as one statement sees them, so a state and its result cannot disagree."""
    values = {"of_batch": batch_id, "first_id": ids[0], "last_id": ids[-1]}
    return _of_rows(connection, ids, connection.execute(_ENDED, values).all())


def of_ids(connection: Connection, ids: Sequence[int]) -> list[ExportedTask]:
    """Return tasks of any batches, as one statement sees them."""
    return _of_rows(connection, ids, connection.execute(_ENDED_OF_IDS, {"ids": ids}).all())


def _of_rows(connection: Connection, ids: Sequence[int], rows: Sequence[Any]) -> list[ExportedTask]:
    spent = _spent(connection, ids)
    call_ids = _last_call_ids(connection, [row.id for row in rows if row.status == Status.DEAD])
    tasks = [_task(row, spent.get(row.id, _NOTHING), call_ids.get(row.id, "")) for row in rows]
    if changed := [row.id for row in rows if row.changed]:
        overrides = task_changes.overrides(connection, changed)
        for task in tasks:
            task.overrides = overrides.get(task.task_id, task.overrides)
    notes = notes_of(connection, ids)
    if not notes:
        return tasks
    return [
        replace(task, notes=notes.get(task.task_id, task.notes) if task.result else task.notes)
        for task in tasks
    ]


def notes_of(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the notes beside the results of these tasks, by kind."""
    notes: dict[int, dict[str, Any]] = {}
    for task_id, kind, detail in execute_by_ids(connection, _NOTES, ids):
        notes.setdefault(task_id, {})[kind] = orjson.loads(detail)
    return notes


def _spent(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return tokens and cost of the attempts that did not succeed."""
    rows = execute_by_ids(connection, _SPENT, ids)
    return {row[0]: tuple(map(int, row[1:])) for row in rows}


def _last_call_ids(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the id of the last call of each task whose last attempt did not succeed."""
    if not ids:
        return {}
    rows = execute_by_ids(connection, _CALL_IDS, ids)
    return {row.task_id: row.trace_id for row in rows}


def _task(row: Sequence[Any], spent: tuple[int, ...], last_call_id: str) -> ExportedTask:
    (
        task_id,
        key,
        status_number,
        counted_attempts,
        line,
        of_inbox,
        parent_key,
        losses,
        _changed,
        codec,
        body,
        model,
        call_id,
        created_at,
        route,
        result_in,
        result_out,
        result_micro,
        result_unpriced,
        *letter,
    ) = row
    status, (tokens_in, tokens_out, cost_micro, unpriced) = _STATUSES[status_number], spent
    has_result = status is Status.SUCCEEDED and codec != EXPIRED
    ended = ExportedTask(
        task_id=task_id,
        key=key.decode(errors="backslashreplace"),
        status=status,
        counted_attempts=counted_attempts,
        input=line or b"",
        tokens_in=tokens_in + (result_in or 0),
        tokens_out=tokens_out + (result_out or 0),
        cost_micro=cost_micro + (result_micro or 0),
        unpriced=unpriced + (result_unpriced or 0),
        result=Result(codec, body, model, call_id, created_at, route) if has_result else None,
        letter=_letter(letter, last_call_id) if status is Status.DEAD else None,
        of_inbox=bool(of_inbox),
        parent=parent_key and parent_key.decode(errors="backslashreplace"),
        losses=losses,
    )
    if status is not Status.SUCCEEDED or has_result:
        return ended
    return expired(ended, created_at, route, call_id)


def _letter(columns: Sequence[Any], last_call_id: str) -> Letter:
    error_class, error_text, died_at, route, packed_error = columns
    error = provider_error_of_packed(packed_error)
    return Letter(error_class, error_text, died_at, last_call_id, route, error)
