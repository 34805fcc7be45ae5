"""Groups dead letters and quarantined records by error: how many, since when, at what cost.

Read only. Groups of dead letters come from the roll-ups, which know how many there are. Dead
letters themselves are counted only for a time or an id, which no roll-up knows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from docllm.producer.ledger.dead_letters import failure_groups, selection_query
from docllm.producer.ledger.dead_letters.failure_groups import NOTHING, FailureGroup, TotalCost
from docllm.producer.ledger.dead_letters.selection import RECORD, Selection
from docllm.producer.ledger.quarantine import error_class
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS, SPENT
from docllm.schemas.ledger.query_plans import unindexed
from docllm.schemas.ledger.tables import batch, dead_letter, quarantine, task

_PAGE = 500
_SPENT = ("attempts", *SPENT)


@dataclass(frozen=True, slots=True)
class Example:
    """The oldest task of a group's oldest batch, or the oldest record.

    `id` is what `show` takes; `batch` is empty for a record. Both are empty for a group of
    several errors.
    """

    id: str
    batch: str
    error_class: str
    error: str


_REPLAYED_MEANWHILE = Example("", "", "", "")  # replayed between two queries
_SEVERAL = Example("", "", "", "errors of which a batch has too many to count each by itself")


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The dead letters or records of one error.

    Times are UTC without a zone; `tasks` is 0 for quarantined records. `first_at` may be of a task
    that was replayed since.
    """

    fingerprint: str
    disposition: str
    count: int
    tasks: int
    first_at: datetime
    last_at: datetime
    example: Example
    spent: TotalCost = NOTHING


def any_dead(connection: Connection, group: str) -> bool:
    """Return whether a task of the group is dead: one search for each batch, the newest first."""
    batch_letter = (
        select(dead_letter.c.task_id).where(dead_letter.c.batch_id == batch.c.id).limit(1)
    )
    along_batch = selection_query.along(batch_letter, "ix_dead_group")
    query = select(batch.c.id).where(
        batch.c.group_name == group, along_batch.scalar_subquery().is_not(None)
    )
    newest_first = query.order_by(batch.c.id.desc()).limit(1)
    return connection.execute(newest_first).scalar() is not None


def listed(
    connection: Connection, group: str, selection: Selection, examples: int | None = None
) -> list[ErrorGroup]:
    """Return the groups of the selected dead letters and records, the largest first.

    The selection's limit counts groups. Only the first `examples` groups need an example.
    """
    records = of_records(connection, selection_query.records(selection, group))
    if not selection.with_tasks:
        return largest_first(records)[: selection.limit]
    if not failure_groups.answers(connection, group, selection):
        tasks = of_tasks(connection, selection_query.tasks(connection, selection, group))
        return largest_first(tasks + records)[: selection.limit]
    failures = failure_groups.read_groups(connection, group, selection)
    shown = largest_first(of_failures(failures) + records)[: selection.limit]
    return with_examples(connection, shown, failures, selection, examples)


def largest_first(groups: Iterable[ErrorGroup]) -> list[ErrorGroup]:
    """Return the groups in the order in which they are shown."""
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint, group.disposition))


def of_failures(failures: Iterable[FailureGroup]) -> list[ErrorGroup]:
    """Return a group, without its example, for each error and disposition."""
    parts: dict[tuple[bytes, str], list[FailureGroup]] = {}
    for failure in failures:
        parts.setdefault((failure.fingerprint, failure.disposition), []).append(failure)
    return [_joined(of_error) for of_error in parts.values()]


def _joined(parts: Sequence[FailureGroup]) -> ErrorGroup:
    """Return one group of the parts that the batches have of an error."""
    fingerprint, dead = parts[0].fingerprint, sum(part.dead for part in parts)
    unknown = replace(_REPLAYED_MEANWHILE, error_class=parts[0].error_class)
    return ErrorGroup(
        fingerprint.hex(),
        parts[0].disposition,
        dead,
        dead,
        min(part.first_at for part in parts),
        max(part.last_at for part in parts),
        _SEVERAL if fingerprint == OTHER_FINGERPRINTS else unknown,
        sum((part.spent for part in parts), NOTHING),
    )


def with_examples(
    connection: Connection,
    groups: Sequence[ErrorGroup],
    failures: Iterable[FailureGroup],
    selection: Selection,
    limit: int | None = None,
) -> list[ErrorGroup]:
    """Return the groups, the first `limit` of them with an example that is dead now.

    The oldest batch comes first in `failures`, and the example is its oldest dead task.
    """
    parts: dict[tuple[str, str], FailureGroup] = {}
    for failure in failures:
        parts.setdefault((failure.fingerprint.hex(), failure.disposition), failure)
    oldest: dict[tuple[str, str], int] = {}
    for group in groups[:limit]:
        part = parts.get(_key(group)) if group.tasks else None
        if part is not None and part.fingerprint != OTHER_FINGERPRINTS:
            oldest[_key(group)] = connection.execute(_oldest(part, selection)).scalar() or 0
    examples = _examples(connection, list(oldest.values()))
    return [
        replace(group, example=examples.get(oldest.get(_key(group), 0), group.example))
        for group in groups
    ]


def _key(group: ErrorGroup) -> tuple[str, str]:
    return group.fingerprint, group.disposition


def _oldest(part: FailureGroup, selection: Selection) -> Select[Any]:
    """Return a query for the oldest dead task of a group in one batch."""
    query = select(dead_letter.c.task_id).where(
        dead_letter.c.batch_id == part.batch_id,
        dead_letter.c.fingerprint == part.fingerprint,
        dead_letter.c.disposition == part.disposition,
    )
    for column, value in (
        (dead_letter.c.type, selection.type),
        (dead_letter.c.tenant, selection.tenant),
    ):
        if value is not None:
            query = query.where(column == value)
    along_group = selection_query.along(query, "ix_dead_group")
    return along_group.order_by(dead_letter.c.task_id).limit(1)


def of_tasks(connection: Connection, tasks: Select[Any]) -> list[ErrorGroup]:
    """Return the groups of the dead letters that a query of `selection_query` returns."""
    keys = (dead_letter.c.fingerprint, dead_letter.c.disposition)
    columns = (
        *keys,
        func.count().label("n"),
        func.min(dead_letter.c.died_at).label("first_at"),
        func.max(dead_letter.c.died_at).label("last_at"),
        func.min(dead_letter.c.task_id).label("oldest"),
        *(func.sum(dead_letter.c[name]).label(name) for name in _SPENT),
    )
    # For the order of an index, SQLite would read every dead letter.
    grouped = tasks.with_only_columns(*columns).group_by(*map(unindexed, keys))
    rows = connection.execute(grouped).all()
    examples = _examples(connection, [row.oldest for row in rows])
    return [
        replace(
            _group(row, examples.get(row.oldest, _REPLAYED_MEANWHILE)),
            tasks=row.n,
            spent=TotalCost(*(int(getattr(row, name)) for name in _SPENT)),
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


def of_records(connection: Connection, records: Select[Any]) -> list[ErrorGroup]:
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


def _group(row: Row[Any], example: Example) -> ErrorGroup:
    return ErrorGroup(
        bytes(row.fingerprint or b"").hex(),
        row.disposition,
        row.n,
        0,
        row.first_at,
        row.last_at,
        example,
    )
