"""Reads tasks for an archive: what the ledger has of each, as a line of JSON.

A line has the columns of five tables by name, under the name of their table. It has neither hooks
nor what a task ordered. `notes`, missing if there are none, are those beside the result, by kind.
`overrides`, missing if there are none, ran in place of fields of the task's line.
An attempt has what the model said as `reply`, if that is kept. The first fields are for readers who
do not know the tables: `id`, `status` and `answer`.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, Table, select

from docllm.producer.ledger import task_changes
from docllm.producer.ledger.results import export
from docllm.schemas.ledger.sql import LONG_AGO_TIME, NEVER_TIME
from docllm.schemas.ledger.tables import (
    dead_letter,
    reply,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.result.answer import read_result, readable, stored_json
from docllm.schemas.task.result.codec import EXPIRED, POINTER, plain
from docllm.schemas.task.states import Status
from docllm.schemas.text.untrusted import contained

_JSON = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NAIVE_UTC


@dataclass(frozen=True, slots=True)
class ArchiveLine:
    """A task of an archive; `raw` is its line, with the line end."""

    task_id: int
    status: Status
    raw: bytes


def read_lines(connection: Connection, ids: Sequence[int]) -> list[ArchiveLine]:
    """Return the lines of these tasks, by id."""
    tasks = _rows(connection, task, ids, "id")
    inputs = _by_task(connection, task_input, ids)
    results = _by_task(connection, task_result, ids)
    letters = _by_task(connection, dead_letter, ids)
    notes = export.notes_of(connection, ids)
    changed = [row["id"] for row in tasks if row["changed"]]
    overrides = task_changes.overrides(connection, changed) if changed else {}
    attempts: dict[int, list[Mapping[Any, Any]]] = {}
    replies = {
        (row["task_id"], row["owner"]): {"reply": row["body"]}
        for row in _rows(connection, reply, ids, "task_id")
    }
    for row in _rows(connection, task_attempt, ids, "task_id"):
        owner = row["owner"] or row["lost_owner"]
        of_attempt = {**row, **replies.get((row["task_id"], owner), {})}
        attempts.setdefault(row["task_id"], []).append(of_attempt)
    return [
        _line(
            row,
            inputs.get(row["id"]),
            results.get(row["id"]),
            letters.get(row["id"]),
            attempts.get(row["id"], ()),
            notes.get(row["id"], {}),
            overrides.get(row["id"], {}),
        )
        for row in tasks
    ]


def _rows(
    connection: Connection, table: Table[Any], ids: Sequence[int], column: str
) -> Sequence[RowMapping]:
    query = select(table).where(table.c[column].in_(ids)).order_by(*table.primary_key.columns)
    return connection.execute(query).mappings().all()


def _by_task(
    connection: Connection, table: Table[Any], ids: Sequence[int]
) -> dict[int, RowMapping]:
    return {row["task_id"]: row for row in _rows(connection, table, ids, "task_id")}


def _line(
    row: RowMapping,
    of_input: RowMapping | None,
    result: RowMapping | None,
    letter: RowMapping | None,
    attempts: Sequence[Mapping[Any, Any]],
    notes: Mapping[str, Any],
    overrides: Overrides,
) -> ArchiveLine:
    status = Status(row["status"])
    line: dict[str, Any] = {
        "id": readable(row["task_key"]),
        "status": status.name.lower(),
        "answer": None if result is None else _answer(of_input, result),
        "task": _values(row),
        "input": of_input and _values(of_input),
        "result": result and _result(result),
        "attempts": [_values(attempt) for attempt in attempts],
        "dead_letter": letter and _values(letter),
    }
    if notes:
        line["notes"] = notes
    if overrides:
        line["overrides"] = overrides
    return ArchiveLine(row["id"], status, orjson.dumps(line, option=_JSON))


def _answer(of_input: RowMapping | None, result: RowMapping) -> Any:
    """Return the answer as an export writes it; None if it lies elsewhere, or is not there."""
    if result["codec"] in {POINTER, EXPIRED}:
        return None
    try:
        with contained():
            line = of_input["body"] if of_input else b""
            return read_result(line, result["codec"], result["body"]).answer
    except Exception:  # noqa: BLE001 - one damaged row must not end the archive, and its bytes stay
        return None


def _result(row: RowMapping) -> dict[str, Any]:
    """Return the columns of a result, whose body is not compressed any more if it can be read."""
    body = stored_json(row["codec"], row["body"])
    codec = row["codec"] if body is row["body"] else plain(row["codec"])
    return _values({**row, "codec": codec, "body": body})


def _values(row: Mapping[Any, Any] | RowMapping) -> dict[str, Any]:
    return {str(name): _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    """Return bytes as a text if they are UTF-8, else by base64; sentinel times as null."""
    if isinstance(value, datetime):
        return None if value in {LONG_AGO_TIME, NEVER_TIME} else value
    if not isinstance(value, bytes | bytearray):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
