"""How fast `docllm export` writes results, without its start.

The results are put into the ledger by one statement: a batch whose tasks have all succeeded.
"""

import time
from collections.abc import Iterator
from datetime import datetime

import orjson
from sqlalchemy import Connection, insert, literal, select, update

from bench.site import Site, Sites
from bench.table import Figure
from bench.tasks import write_tasks
from docllm.schemas.ledger.tables import task, task_result
from docllm.schemas.task.states import Status

COUNT, LINE_BYTES, ANSWER_CHARS = 100_000, 300, 760  # an answer of 1 KB
STARTS = 3
# Results a second to reach, with MariaDB and with SQLite.
GOAL, EMBEDDED_GOAL = 22_000.0, 30_000.0


def measure(sites: Sites, *, quick: bool) -> Iterator[Figure]:
    """Export one batch, on each kind of parts."""
    count = COUNT // (20 if quick else 1)
    for site in sites.both():
        site.load(write_tasks(site.folder / "one.jsonl", 1, LINE_BYTES))
        start_s = min(_export_s(site) for _ in range(STARTS))
        site.load(write_tasks(site.folder / "tasks.jsonl", count, LINE_BYTES))
        site.ask(_succeed)
        yield Figure(
            f"export of {count:,} results of 1 KB",
            site.parts,
            count / max(0.001, _export_s(site) - start_s),
            "1/s",
            EMBEDDED_GOAL if site.embedded else GOAL,
            at_least=True,
        )


def _export_s(site: Site) -> float:
    began_s = time.perf_counter()
    site.run("producer", "export", "--group", site.group, "-o", "results.jsonl")
    return time.perf_counter() - began_s


def _succeed(connection: Connection) -> None:
    """Give each task a result."""
    message = {"role": "assistant", "content": "x" * ANSWER_CHARS}
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "rehearsal",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200},
    }
    values = {
        "codec": 0,
        "body": orjson.dumps(completion),
        "model": "rehearsal",
        "trace_id": "0" * 32,
        "created_at": datetime(2026, 1, 1),  # noqa: DTZ001 - UTC without a zone, as stored
        "route": "default",
        "tokens_in": 100,
        "tokens_out": 100,
        "cost_micro": 0,
    }
    columns = [literal(value, task_result.c[name].type) for name, value in values.items()]
    results = insert(task_result).from_select(["task_id", *values], select(task.c.id, *columns))
    connection.execute(results)
    connection.execute(update(task).values(status=int(Status.SUCCEEDED)))
