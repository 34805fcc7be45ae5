"""Makes the records of the topic of results: the line that an export has of an ended task.

A line whose result is large, or lies outside the ledger, has the place of the result instead.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection, select

from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.results import export
from docllm.producer.ledger.results.result_lines import ExportedTask, fields_of
from docllm.producer.ports import Item
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import Outgoing, text
from docllm.schemas.task.record.topics import RESULTS, Topics
from docllm.schemas.task.result.codec import POINTER, VALUE
from docllm.schemas.task.result.output_pointer import OutputPointer
from docllm.schemas.task.states import Status

MAX_BYTES = 512 << 10  # of a line with its result
_ENDS = (Status.SUCCEEDED, Status.DEAD)


def result_records(
    connection: Connection, topics: Topics, items: Sequence[Item]
) -> dict[Item, Outgoing]:
    """Return the records of the tasks that have succeeded or are dead under their item's fence."""
    by_id = {item.id: item for item in items if item.kind == TASK}
    query = (
        select(task.c.id, task.c.fence, task.c.task_key, batch.c.name)
        .join(batch, batch.c.id == task.c.batch_id)
        .where(task.c.id.in_(sorted(by_id)), task.c.status.in_(map(int, _ENDS)))
    )
    rows = {row.id: row for row in connection.execute(query) if row.fence == by_id[row.id].fence}
    records = {}
    for ended in export.of_ids(connection, sorted(rows)) if rows else ():
        if ended.status not in _ENDS:  # a replay has begun since
            continue
        row = rows[ended.task_id]
        headers = [(header_names.BATCH, text(row.name, 1000))]
        value = export.written(ended, _line)
        records[by_id[row.id]] = Outgoing(topics.name(RESULTS), row.task_key, value, headers)
    return records


def _line(ended: ExportedTask) -> bytes:
    result = ended.result
    if result is not None and result.codec == POINTER:
        pointer = OutputPointer.of_stored(result.body)
        nothing = replace(
            result, codec=VALUE, body=b"null", output=pointer.uri, mended=pointer.mended
        )
        return _without_result(fields_of(replace(ended, result=nothing)), pointer.uri)
    fields = fields_of(ended)
    line = orjson.dumps(fields)
    return line if len(line) <= MAX_BYTES else _without_result(fields, "ledger")


def _without_result(fields: dict[str, Any], place: str) -> bytes:
    return orjson.dumps(fields | {"result": None, "result_in": place})
