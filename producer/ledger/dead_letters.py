"""Groups dead letters and quarantined records by error: how many, since when, at what cost.

Read only. The database counts, so of a million dead letters only the groups come into memory.

Tested by tests/contract/test_ledger_dead.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from producer.ledger import selection_query
from producer.ledger.quarantine import error_class
from producer.ledger.selection import RECORD, Selection
from schemas.ledger.tables import batch, dead_letter, quarantine, task, task_attempt
from schemas.task.states import Status

_PAGE = 500
_SPENT = ("tokens_in", "tokens_out", "cost_micro")


@dataclass(frozen=True, slots=True)
class TotalCost:
    """The cost of some tasks' attempts; `cost_micro` is in millionths of the currency's unit."""

    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int = 0


@dataclass(frozen=True, slots=True)
class Example:
    """The oldest task or record of a group.

    `id` is what `dead show` takes; `batch` is empty for a record.
    """

    id: str
    batch: str
    error_class: str
    error: str


_REPLAYED_MEANWHILE = Example("", "", "", "")  # replayed between two queries


@dataclass(frozen=True, slots=True)
class Group:
    """The dead letters or records of one error.

    Times are UTC without a zone; `tasks` is 0 for quarantined records.
    """

    fingerprint: str
    disposition: str
    count: int
    tasks: int
    first_at: datetime
    last_at: datetime
    example: Example
    spent: TotalCost = TotalCost()


def any_dead(connection: Connection, group: str) -> bool:
    """Return whether a task of the group is dead."""
    query = select(task.c.id).join(batch, batch.c.id == task.c.batch_id)
    query = query.where(task.c.status == int(Status.DEAD), batch.c.group_name == group).limit(1)
    return connection.execute(query).scalar() is not None


def listed(connection: Connection, group: str, selection: Selection) -> list[Group]:
    """Return the groups of the selected dead letters and records, the largest first.

    The selection's limit counts groups.
    """
    tasks = of_tasks(connection, selection_query.tasks(selection, group))
    records = of_records(connection, selection_query.records(selection, group))
    return largest_first(tasks + records)[: selection.limit]


def largest_first(groups: Iterable[Group]) -> list[Group]:
    """Return the groups in the order in which they are shown."""
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint, group.disposition))


def of_tasks(connection: Connection, tasks: Select[Any]) -> list[Group]:
    """Return the groups of the dead letters that a query of `selection_query` returns."""
    keys = (dead_letter.c.fingerprint, dead_letter.c.disposition)
    columns = (
        *keys,
        func.count().label("n"),
        func.min(dead_letter.c.died_at).label("first_at"),
        func.max(dead_letter.c.died_at).label("last_at"),
    )
    rows = connection.execute(
        tasks.with_only_columns(*columns, func.min(task.c.id).label("oldest")).group_by(*keys)
    ).all()
    examples = _examples(connection, [row.oldest for row in rows])
    sums = [func.sum(task_attempt.c[name]) for name in _SPENT]
    costs = (
        tasks.join(task_attempt, task_attempt.c.task_id == task.c.id)
        .with_only_columns(*keys, func.count(), *sums)
        .group_by(*keys)
    )
    spent = {
        (row[0], row[1]): TotalCost(*(int(value) for value in row[2:]))
        for row in connection.execute(costs)
    }
    return [
        replace(
            _group(row, examples.get(row.oldest, _REPLAYED_MEANWHILE)),
            tasks=row.n,
            spent=spent.get((row.fingerprint, row.disposition), TotalCost()),
        )
        for row in rows
    ]


def _examples(connection: Connection, ids: Sequence[int]) -> dict[int, Example]:
    columns = (
        task.c.id,
        task.c.task_key,
        batch.c.name,
        dead_letter.c.error_class,
        dead_letter.c.error_text,
    )
    query = (
        select(*columns)
        .join(batch, batch.c.id == task.c.batch_id)
        .join(dead_letter, dead_letter.c.task_id == task.c.id)
    )
    examples = {}
    for start in range(0, len(ids), _PAGE):
        for row in connection.execute(query.where(task.c.id.in_(ids[start : start + _PAGE]))):
            examples[row.id] = Example(
                row.task_key.decode(errors="backslashreplace"),
                row.name,
                row.error_class,
                row.error_text,
            )
    return examples


def of_records(connection: Connection, records: Select[Any]) -> list[Group]:
    """Return the groups of the records that a query of `selection_query` returns."""
    keys = (quarantine.c.fingerprint, quarantine.c.disposition)
    created_at = quarantine.c.created_at
    columns = (
        *keys,
        func.count().label("n"),
        func.min(created_at).label("first_at"),
        func.max(created_at).label("last_at"),
    )
    query = records.with_only_columns(*columns, func.min(quarantine.c.id).label("oldest")).group_by(
        *keys
    )
    rows = connection.execute(query).all()
    texts: dict[int, str] = {}
    for start in range(0, len(rows), _PAGE):
        ids = [row.oldest for row in rows[start : start + _PAGE]]
        texts_query = select(quarantine.c.id, quarantine.c.error_text).where(
            quarantine.c.id.in_(ids)
        )
        texts.update((row.id, row.error_text) for row in connection.execute(texts_query))

    def example(row: Row[Any]) -> Example:
        text = texts.get(row.oldest, "")
        return Example(f"{RECORD}{row.oldest}", "", error_class(row.disposition), text)

    return [_group(row, example(row)) for row in rows]


def _group(row: Row[Any], example: Example) -> Group:
    return Group(
        bytes(row.fingerprint or b"").hex(),
        row.disposition,
        row.n,
        0,
        row.first_at,
        row.last_at,
        example,
    )
