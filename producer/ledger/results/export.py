"""Writes the results of batches as lines, in the order of loading, in bounded memory.

It reads the ledger and changes nothing. Pages follow the primary key, each in a transaction of its
own, so an export of millions holds no snapshot and no lock.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Protocol, TypeVar

import orjson
from sqlalchemy import Connection, Row, and_, func, select

from docllm.producer.ledger import store
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.results.pointed_results import Fetch, follow, no_outputs
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    Letter,
    LineOf,
    Result,
    expired,
    with_unreadable_output,
)
from docllm.schemas.codes import Code
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


class Read(Protocol):
    """Runs one reading function, and retries it if needed: `Database.run_singly`."""

    def __call__(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work`."""
        ...


def export(
    read: Read,
    batch_ids: Sequence[int],
    line_of: LineOf,
    output: BinaryIO,
    fetch: Fetch = no_outputs,
    note_lost: Callable[[str], None] = log.warning,
) -> dict[int, Counter[Status]]:
    """Write each task's line to `output`; return, by batch, how many tasks are in each state.

    `fetch` reads results outside the ledger; `note_lost` hears of those that are not there.
    """
    counts: dict[int, Counter[Status]] = {}
    for batch_id in batch_ids:
        statuses = counts[batch_id] = Counter()
        for ended in follow(_tasks(read, batch_id), fetch, note_lost):
            statuses[ended.status] += 1
            if line := _written(ended, line_of):
                output.write(line)
    return counts


def _written(ended: ExportedTask, line_of: LineOf) -> bytes | None:
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


def unfinished(counts: Counter[Status]) -> int:
    """Return how many of the counted tasks are not final."""
    return sum(counts[status] for status in OPEN)


def _tasks(read: Read, batch_id: int) -> Iterator[ExportedTask]:
    for ids in id_groups(read, batch_id):
        yield from read(partial(_ended, ids=ids))


def id_groups(
    read: Read, batch_id: int, within: tuple[int, int] | None = None
) -> Iterator[list[int]]:
    """Yield the ids of a batch's tasks in order, in pages that take little memory.

    `within` bounds the ids; without it they are all of the batch.
    """
    next_id, last_id = within or read(partial(id_range, batch_id=batch_id))
    while next_id <= last_id:
        page = read(partial(_page, first_id=next_id, last_id=last_id))
        if not page:
            return
        next_id = page[-1][0] + 1
        task_ids = [key for key, owner in page if owner == batch_id]
        sizes = read(partial(_sizes, ids=task_ids))
        yield from _groups(task_ids, sizes)


def _page(connection: Connection, first_id: int, last_id: int) -> list[tuple[int, int]]:
    """Return ids and batches along the primary key.

    The query does not name the batch, which would tempt the server to sort the whole batch for each
    page.
    """
    query = (
        select(task.c.id, task.c.batch_id)
        .where(task.c.id.between(first_id, last_id))
        .order_by(task.c.id)
        .limit(_PAGE)
    )
    return [(row.id, row.batch_id) for row in connection.execute(query)]


def _sizes(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Return how many bytes each task takes in memory, by the stored sizes."""
    sizes: Counter[int] = Counter()
    for table in (task_input, task_result):
        query = select(table.c.task_id, func.length(table.c.body)).where(table.c.task_id.in_(ids))
        for key, size in connection.execute(query):
            sizes[key] += size
    return [sizes[key] for key in ids]


def _groups(ids: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    group: list[int] = []
    group_bytes = 0
    for key, size in zip(ids, sizes, strict=True):
        if group and group_bytes + size > _PAGE_BYTES:
            yield group
            group, group_bytes = [], 0
        group.append(key)
        group_bytes += size
    if group:
        yield group


def _ended(connection: Connection, ids: Sequence[int]) -> list[ExportedTask]:
    """Return the tasks as one statement sees them, so a state and its result cannot disagree."""
    result = [column.label(f"result_{column.name}") for column in task_result.c]
    columns_of_letter = ("error_class", "error_text", "died_at", "route", "provider_error")
    letter = [dead_letter.c[name] for name in columns_of_letter]
    joined = task.outerjoin(task_input, task_input.c.task_id == task.c.id)
    joined = joined.outerjoin(batch, batch.c.id == task.c.batch_id)
    joined = joined.outerjoin(task_result, task_result.c.task_id == task.c.id)
    joined = joined.outerjoin(dead_letter, dead_letter.c.task_id == task.c.id)
    joined = joined.outerjoin(_PARENT, _PARENT.c.id == task.c.parent_id)
    columns = (
        task.c.id,
        task.c.task_key,
        task.c.status,
        task.c.attempt,
        task_input.c.body,
        _OF_INBOX.label("of_inbox"),
        _PARENT.c.task_key.label("parent_key"),
        *result,
        *letter,
    )
    query = select(*columns).select_from(joined).where(task.c.id.in_(ids)).order_by(task.c.id)
    rows = connection.execute(query).all()
    spent = _spent(connection, ids)
    call_ids = _last_call_ids(connection, [row.id for row in rows if row.status == Status.DEAD])
    tasks = [_task(row, spent.get(row.id, (0, 0, 0)), call_ids.get(row.id, "")) for row in rows]
    notes = notes_of(connection, [task.task_id for task in tasks if task.result is not None])
    if not notes:
        return tasks
    return [replace(task, notes=notes.get(task.task_id, task.notes)) for task in tasks]


def notes_of(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the notes beside the results of these tasks, by kind."""
    if not ids:
        return {}
    query = select(result_note).where(result_note.c.task_id.in_(ids))
    notes: dict[int, dict[str, Any]] = {}
    for row in connection.execute(query.order_by(result_note.c.task_id, result_note.c.kind)):
        notes.setdefault(row.task_id, {})[row.kind] = orjson.loads(row.detail)
    return notes


def _spent(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """Return tokens and cost of the attempts that did not succeed."""
    sums = [func.sum(task_attempt.c[name]) for name in ("tokens_in", "tokens_out", "cost_micro")]
    query = (
        select(task_attempt.c.task_id, *sums)
        .where(task_attempt.c.task_id.in_(ids))
        .group_by(task_attempt.c.task_id)
    )
    return {row[0]: (int(row[1]), int(row[2]), int(row[3])) for row in connection.execute(query)}


def _last_call_ids(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the id of the last call of each task whose last attempt did not succeed."""
    if not ids:
        return {}
    attempts = task_attempt.c
    query = (
        select(attempts.task_id, attempts.trace_id)
        .where(attempts.task_id.in_(ids))
        .order_by(attempts.id)
    )
    return {row.task_id: row.trace_id for row in connection.execute(query)}


def _task(row: Row[Any], spent: tuple[int, int, int], last_call_id: str) -> ExportedTask:
    status = Status(row.status)
    tokens_in, tokens_out, cost_micro = spent
    has_result = status == Status.SUCCEEDED and row.result_codec != EXPIRED
    ended = ExportedTask(
        task_id=row.id,
        key=row.task_key.decode(errors="backslashreplace"),
        status=status,
        counted_attempts=row.attempt,
        input=row.body or b"",  # an erasure may have deleted it
        tokens_in=tokens_in + (row.result_tokens_in or 0),
        tokens_out=tokens_out + (row.result_tokens_out or 0),
        cost_micro=cost_micro + (row.result_cost_micro or 0),
        result=_result(row) if has_result else None,
        letter=_letter(row, last_call_id) if status == Status.DEAD else None,
        of_inbox=bool(row.of_inbox),
        parent=row.parent_key and row.parent_key.decode(errors="backslashreplace"),
    )
    if status != Status.SUCCEEDED or has_result:
        return ended
    return expired(ended, row.result_created_at, row.result_route, row.result_trace_id)


def _letter(row: Row[Any], last_call_id: str) -> Letter:
    error = provider_error_of_packed(row.provider_error)
    return Letter(row.error_class, row.error_text, row.died_at, last_call_id, row.route, error)


def _result(row: Row[Any]) -> Result:
    return Result(
        row.result_codec,
        row.result_body,
        row.result_model,
        row.result_trace_id,
        row.result_created_at,
        row.result_route,
    )
