"""Reads the selected tasks in pages that each cost the same, however many there are. Read only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from docllm.producer.ledger.dead_letters import selection_query
from docllm.producer.ledger.dead_letters.selection import RECORD, Selection
from docllm.producer.ledger.results.export import Read
from docllm.schemas.ledger.tables import quarantine, task

PAGE = 1000


def pages(read: Read, group: str, selection: Selection) -> Iterator[list[int]]:
    """Yield the numbers of the selected tasks, in the order of loading."""
    after, left = 0, selection.limit
    while left is None or left > 0:
        seen, ids = read(partial(_page, group=group, selection=selection, after=after))
        ids = ids[:left]
        if ids:
            yield ids
        if len(seen) < PAGE:
            return
        after = seen[-1]
        left = None if left is None else left - len(ids)


def names(read: Read, group: str, selection: Selection) -> Iterator[str]:
    """Yield the ids of the selected tasks; then the selected records, each as `quarantine:N`."""
    count = 0
    for ids in pages(read, group, selection):
        rows = read(partial(_keys, ids=ids))
        count += len(rows)
        yield from (row.task_key.decode(errors="backslashreplace") for row in rows)
    left = None if selection.limit is None else selection.limit - count
    after = 0
    while left is None or left > 0:
        records = read(partial(_records, group=group, selection=selection, after=after))[:left]
        yield from (f"{RECORD}{number}" for number in records)
        if len(records) < PAGE:
            return
        after = records[-1]
        left = None if left is None else left - len(records)


def _page(
    connection: Connection, *, group: str, selection: Selection, after: int
) -> tuple[list[int], list[int]]:
    """Return the next ids that may be selected, and those of them that are."""
    near = selection_query.ids_after(connection, selection, group, after).limit(PAGE)
    seen = list(connection.execute(near).scalars())
    if not seen:
        return [], []
    index = selection_query.page_index(selection)
    query = selection_query.tasks(connection, selection, group, index)
    column = query.selected_columns[0]
    page = query.where(column.between(seen[0], seen[-1])).order_by(column)
    return seen, list(connection.execute(page).scalars())


def _keys(connection: Connection, *, ids: list[int]) -> list[Row[Any]]:
    query = task.select().with_only_columns(task.c.id, task.c.task_key)
    return list(connection.execute(query.where(task.c.id.in_(ids)).order_by(task.c.id)))


def _records(connection: Connection, *, group: str, selection: Selection, after: int) -> list[int]:
    query = selection_query.records(selection, group).where(quarantine.c.id > after)
    return list(connection.execute(query.order_by(quarantine.c.id).limit(PAGE)).scalars())
