"""Reads and writes what replays have changed of tasks, as SQL.

The fields that a replay sets in place of a line's stand in its request, once for all its tasks. A
row of `task_change` says from which publication on they hold for a task.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import BindParameter, Connection, bindparam, insert, select, update

from docllm.schemas.ledger.tables import replay_run, task, task_change, task_input
from docllm.schemas.task.line.overrides import Overrides, merged


def write(
    connection: Connection, run_id: int, fences: Mapping[int, int], former: Mapping[int, bytes]
) -> None:
    """Note that a replay changes these tasks from the given publications on.

    `former` has the digests of lines before, where the replay changes the line itself.
    """
    rows = [
        {
            "task_id": task_id,
            "fence": fence,
            "run_id": run_id,
            "former_digest": former.get(task_id),
        }
        for task_id, fence in sorted(fences.items())
    ]
    if rows:
        connection.execute(insert(task_change), rows)
        connection.execute(update(task).where(task.c.id.in_(sorted(fences))).values(changed=1))


def overrides(connection: Connection, ids: Iterable[int]) -> dict[int, Overrides]:
    """Return what runs in place of fields of these tasks' lines."""
    changes: defaultdict[int, list[Overrides]] = defaultdict(list)
    requests: dict[int, Overrides] = {}
    rows = _rows(connection, ids)
    query = select(replay_run.c.id, replay_run.c.selection)
    runs = sorted({row.run_id for row in rows})
    for run in connection.execute(query.where(replay_run.c.id.in_(runs))) if runs else ():
        requests[run.id] = orjson.loads(run.selection).get("overrides", {})
    for row in rows:
        changes[row.task_id].append(requests.get(row.run_id, {}))
    return {task_id: found for task_id, parts in changes.items() if (found := merged(parts))}


def former_digests(
    connection: Connection, ids: Iterable[int]
) -> dict[int, list[tuple[int, bytes]]]:
    """Return the digests of the lines that these tasks had before, and below which fence."""
    digests: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in _rows(connection, ids):
        if row.former_digest is not None:
            digests[row.task_id].append((row.fence, bytes(row.former_digest)))
    return digests


def _rows(connection: Connection, ids: Iterable[int]) -> Sequence[Any]:
    query = select(task_change).where(task_change.c.task_id.in_(sorted(ids)))
    return connection.execute(query.order_by(task_change.c.task_id, task_change.c.fence)).all()


def bodies(connection: Connection, ids: Iterable[int]) -> dict[int, bytes]:
    """Return the lines of these tasks."""
    query = select(task_input.c.task_id, task_input.c.body)
    rows = connection.execute(query.where(task_input.c.task_id.in_(sorted(ids))))
    return {row.task_id: bytes(row.body) for row in rows}


def write_lines(connection: Connection, lines: Sequence[Mapping[str, Any]]) -> None:
    """Replace the lines of locked tasks: each has `of_task`, `line`, and its digest as `stamp`."""
    of_task: BindParameter[int] = bindparam("of_task")
    stamped = update(task).where(task.c.id == of_task).values(digest=bindparam("stamp"))
    connection.execute(
        stamped, [{"of_task": line["of_task"], "stamp": line["stamp"]} for line in lines]
    )
    written = update(task_input).where(task_input.c.task_id == of_task)
    connection.execute(
        written.values(body=bindparam("line")),
        [{"of_task": line["of_task"], "line": line["line"]} for line in lines],
    )
