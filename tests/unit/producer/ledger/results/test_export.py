"""Exports from real SQLite tables: every line, in pages, whatever the number and size."""

import io
import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from sqlalchemy import Connection, event, insert, update

from docllm.producer.ledger.results import export as exports
from docllm.producer.ledger.results.export import ALL, export, unfinished
from docllm.producer.ledger.results.result_lines import docllm_line, openai_line
from docllm.producer.ledger.store import Origin
from docllm.producer.ledger.task_story import story
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    task,
    task_attempt,
    task_input,
    task_result,
)
from docllm.schemas.task.provider_error import ProviderError
from docllm.schemas.task.result.codec import (
    COMPLETION,
    COMPLETION_ZLIB,
    JSON_COMPLETION,
    JSON_COMPLETION_ZLIB,
    VALUE,
    VALUE_ZLIB,
)
from docllm.schemas.task.states import Status

# The database's times are UTC without a zone.
ENDED = datetime(2027, 1, 31, 18, 0, 0, 120000)  # noqa: DTZ001
SCHEMA = Path(__file__).parents[5] / "schemas" / "json" / "result_line.json"


def completion(text: str | None) -> bytes:
    return orjson.dumps(
        {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    )


class Filled:
    """Writes rows as a load and a settle do."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.next = 1

    def add(
        self,
        key: str,
        status: Status,
        *,
        batch: int = 1,
        attempt: int = 0,
        line: dict[str, Any] | None = None,
    ) -> int:
        task_id, self.next = self.next, self.next + 1
        row = {
            "id": task_id,
            "batch_id": batch,
            "task_key": key.encode(),
            "digest": bytes(16),
            "type": "document",
            "tenant": "default",
        }
        self.write(task, row | {"status": int(status), "attempt": attempt})
        self.write(
            task_input,
            {"task_id": task_id, "body": orjson.dumps(line or {"id": key, "prompt": "p"})},
        )
        return task_id

    def succeeded(self, key: str, body: bytes, codec: int = COMPLETION, **more: Any) -> int:
        task_id = self.add(key, Status.SUCCEEDED, **more)
        spent = {
            "model": "m",
            "tokens_in": 10,
            "tokens_out": 5,
            "cost_micro": 1_500,
            "trace_id": "req-1",
        }
        self.write(
            task_result,
            {"task_id": task_id, "owner": 7, "codec": codec, "body": body, "created_at": ENDED}
            | spent,
        )
        return task_id

    def failed_attempt(self, task_id: int) -> None:
        spent = {"tokens_in": 100, "tokens_out": 50, "cost_micro": 500_000}
        self.write(
            task_attempt,
            {"task_id": task_id, "fence": 0, "outcome": "retry", "started_at": ENDED} | spent,
        )

    def dead(self, key: str, error_class: str = "BAD_REQUEST", **more: Any) -> int:
        task_id = self.add(key, Status.DEAD, **more)
        letter = {
            "disposition": "permanent",
            "error_class": error_class,
            "error_text": "no such model",
            "died_at": ENDED,
        }
        self.write(dead_letter, {"task_id": task_id, "fence": 0, "fingerprint": bytes(16)} | letter)
        return task_id

    def write(self, table: Any, row: dict[str, Any]) -> None:
        with self.database.engine.begin() as connection:
            connection.execute(insert(table), row)


@pytest.fixture
def filled(database: Database) -> Filled:
    return Filled(database)


def lines(filled: Filled, *batches: int, openai: bool = False) -> list[dict[str, Any]]:
    out = io.BytesIO()
    line_of = openai_line if openai else docllm_line
    chosen = dict.fromkeys(batches or (1,), ALL)
    export(filled.database.run_singly, chosen, line_of, out.write)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_success_is_exported_with_its_text_and_cost(filled: Filled) -> None:
    """The result is the message's text; tokens and cost include failed attempts."""
    filled.failed_attempt(filled.succeeded("a", completion("Sales rose."), attempt=1))

    assert lines(filled) == [
        {
            "id": "a",
            "status": "succeeded",
            "result": "Sales rose.",
            "error": None,
            "attempts": 2,
            "model": "m",
            "route": None,
            "tokens_in": 110,
            "tokens_out": 55,
            "cost": 0.5015,
            "finished_at": "2027-01-31T18:00:00.120000Z",
        }
    ]


def test_a_death_is_its_class_and_text(filled: Filled) -> None:
    """A dead task has no result; its error has the class as code and the text as message."""
    filled.failed_attempt(filled.dead("a", attempt=1))

    (line,) = lines(filled)

    assert (line["status"], line["result"], line["model"]) == ("dead", None, None)
    assert line["error"] == {"code": "BAD_REQUEST", "message": "no such model"}
    assert (line["attempts"], line["tokens_in"], line["finished_at"]) == (
        1,
        100,
        "2027-01-31T18:00:00.120000Z",
    )


@pytest.mark.parametrize(
    ("body", "codec", "line", "result"),
    [
        (completion('{"n": 1}'), COMPLETION, {"id": "a", "schema": {"type": "object"}}, {"n": 1}),
        (completion("no JSON"), COMPLETION, {"id": "a", "schema": {"type": "object"}}, "no JSON"),
        (completion('{"n": 1}'), COMPLETION, {"id": "a"}, '{"n": 1}'),
        (completion('{"n": 1}'), COMPLETION, {"id": "a", "metadata": {"schema": 1}}, '{"n": 1}'),
        (zlib.compress(completion("long")), COMPLETION_ZLIB, {"id": "a"}, "long"),
        (completion(None), COMPLETION, {"custom_id": "a"}, None),
        (completion('{"n": 1}'), JSON_COMPLETION, {"id": "a"}, {"n": 1}),
        (completion("no JSON"), JSON_COMPLETION, {"id": "a"}, "no JSON"),
        (zlib.compress(completion("[1]")), JSON_COMPLETION_ZLIB, {"id": "a"}, [1]),
        (b'{"choices": []}', COMPLETION, {"custom_id": "a"}, None),
        (b'{"pages": [1, 2]}', VALUE, {"id": "a"}, {"pages": [1, 2]}),
        (zlib.compress(b'"text"'), VALUE_ZLIB, {"id": "a"}, "text"),
    ],
)
def test_a_result_is_read_as_it_was_stored(
    filled: Filled, body: bytes, codec: int, line: dict[str, Any], result: object
) -> None:
    """A result is exported as it was stored: packed or not, completion or value.

    Text becomes JSON only if the line itself has a schema, or if the task's type had one.
    """
    filled.succeeded("a", body, codec, line=line)

    assert lines(filled)[0]["result"] == result


def test_unfinished_tasks_are_exported_and_counted(filled: Filled) -> None:
    """An export at any time shows each task's state and counts unfinished tasks."""
    for status in (Status.PENDING, Status.PROCESSING, Status.RETRYING, Status.CANCELLED):
        filled.add(status.name, status)
    filled.succeeded("done", completion("x"))
    out = io.BytesIO()

    counts = export(filled.database.run_singly, {1: ALL}, docllm_line, out.write)[1]

    assert [json.loads(line)["status"] for line in out.getvalue().splitlines()] == [
        "pending",
        "processing",
        "retrying",
        "cancelled",
        "succeeded",
    ]
    assert unfinished(counts) == 3
    assert counts.total() == 5


def test_dead_show_counts_attempts_as_an_export_does(filled: Filled) -> None:
    """`show` counts attempts as an export does: failed ones and the one that succeeded.

    A task that still waits has only failed ones. One that was late from the beginning has none.
    """
    filled.write(batch, {"id": 1, "name": "b", "group_name": "g"})
    filled.succeeded("done", completion("x"), attempt=2)
    filled.dead("dead", attempt=3)
    filled.dead("late", "EXPIRED", attempt=1)
    filled.add("waits", Status.RETRYING, attempt=1)

    exported = {line["id"]: line["attempts"] for line in lines(filled)}
    stories = {
        key: filled.database.run_singly(partial(story, group="g", batch_name="b", key=key))
        for key in exported
    }

    assert exported == {"done": 3, "dead": 3, "late": 0, "waits": 1}
    assert {key: story.attempts for key, story in stories.items() if story is not None} == exported


def test_each_batch_is_counted_by_itself(filled: Filled) -> None:
    """Each batch is counted separately, so that a person sees which one is unfinished."""
    filled.add("a", Status.PENDING, batch=1)
    filled.succeeded("b", completion("x"), batch=2)

    chosen = dict.fromkeys([1, 2, 3], ALL)
    counts = export(filled.database.run_singly, chosen, docllm_line, io.BytesIO().write)

    assert [(batch, unfinished(its), its.total()) for batch, its in counts.items()] == [
        (1, 1, 1),
        (2, 0, 1),
        (3, 0, 0),
    ]


def test_the_openai_file_holds_whole_completions_and_errors(filled: Filled) -> None:
    """Answers, failures and cancellations are in one file, each under its custom_id.

    Unfinished tasks are not in it.
    """
    filled.succeeded("a", b'{"id": "c",\n "choices": [], "usage": {"x": 1.50}}')
    filled.succeeded("b", b'{"seed": 1.50}')
    filled.succeeded("v", b'{"pages":2}', VALUE)
    filled.dead("d")
    filled.add("e", Status.CANCELLED)
    filled.add("f", Status.PENDING)

    first, second, value, dead, cancelled = lines(filled, openai=True)

    body = {"id": "c", "choices": [], "usage": {"x": 1.5}}
    assert first == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req-1", "body": body},
        "error": None,
    }
    assert second["response"]["body"] == {"seed": 1.5}
    assert value["response"]["body"]["choices"][0]["message"]["content"] == '{"pages":2}'
    assert (dead["custom_id"], dead["response"], dead["error"]) == (
        "d",
        None,
        {"code": "BAD_REQUEST", "message": "no such model"},
    )
    assert (cancelled["custom_id"], cancelled["error"]["code"]) == ("e", "cancelled")


def test_the_openai_file_has_the_providers_refusal(filled: Filled) -> None:
    """A refusal stands where OpenAI's own files have it, with the id of the last attempt.

    What is no answer of the provider is an error of the line, whatever its text looks like.
    """
    texts = {
        "coded": ("BAD_REQUEST", "400 invalid_value: Invalid 'n': too large."),
        "plain": ("SERVER", "503: upstream: down"),
        "named": ("BAD_REQUEST", "400 invalid_request_error: Invalid 'n': too large."),
        "cut": ("NETWORK", "no connection: refused"),
        "handler": ("HANDLER", "500 ValueError: not a reply"),
    }
    for key, (error_class, error_text) in texts.items():
        task_id = filled.dead(key, attempt=2)
        for trace_id in ("req-first", f"req-{key}"):
            attempt = {"task_id": task_id, "fence": 0, "trace_id": trace_id, "started_at": ENDED}
            filled.write(task_attempt, attempt)
        with filled.database.engine.begin() as connection:
            connection.execute(
                update(dead_letter)
                .where(dead_letter.c.task_id == task_id)
                .values(
                    error_class=error_class,
                    error_text=error_text,
                    provider_error=ProviderError("invalid_request_error", "n").packed()
                    if key == "named"
                    else None,
                )
            )

    by_id = {line["custom_id"]: line for line in lines(filled, openai=True)}

    assert by_id["coded"]["error"] is None
    assert by_id["coded"]["response"] == {
        "status_code": 400,
        "request_id": "req-coded",
        "body": {
            "error": {
                "message": "Invalid 'n': too large.",
                "type": "invalid_value",
                "param": None,
                "code": "invalid_value",
            }
        },
    }
    assert by_id["plain"]["response"]["status_code"] == 503
    assert by_id["plain"]["response"]["body"]["error"] == {
        "message": "upstream: down",
        "type": "SERVER",
        "param": None,
        "code": None,
    }
    assert by_id["named"]["response"]["body"]["error"] == {
        "message": "Invalid 'n': too large.",
        "type": "invalid_request_error",
        "param": "n",
        "code": None,
    }
    for key in ("cut", "handler"):
        error_class, error_text = texts[key]
        assert by_id[key]["response"] is None
        assert by_id[key]["error"] == {"code": error_class, "message": error_text}


def test_a_completion_of_one_line_is_exported_byte_for_byte(filled: Filled) -> None:
    """A completion is exported byte for byte, so that no number changes."""
    filled.succeeded("a", b'{"n": 1.50, "big": 123456789012345678901234567890}')
    out = io.BytesIO()

    export(filled.database.run_singly, {1: ALL}, openai_line, out.write)

    assert b'{"n": 1.50, "big": 123456789012345678901234567890}' in out.getvalue()


def test_order_is_that_of_loading_and_batches_do_not_mix(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task is exported once, in the order of ids, despite small pages, gaps and batches."""
    monkeypatch.setattr(exports, "_PAGE", 3)
    for number in range(20):
        filled.succeeded(f"z{20 - number}", completion(str(number)), batch=1 + number % 2)
        filled.next += number % 5

    assert [line["result"] for line in lines(filled, 1)] == [
        str(number) for number in range(0, 20, 2)
    ]
    assert [line["result"] for line in lines(filled, 2, 1)] == [
        str(number) for number in (*range(1, 20, 2), *range(0, 20, 2))
    ]
    assert lines(filled, 9) == []


def test_large_results_come_in_small_groups(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most a page's bytes are read at once; a larger result is read alone."""
    monkeypatch.setattr(exports, "_PAGE_BYTES", 3000)
    for number, size in enumerate((1000, 1000, 1000, 9000, 10)):
        filled.succeeded(str(number), completion("x" * size))
    read: list[int] = []
    real = exports._ended

    def ended(connection: Connection, batch_id: int, ids: Sequence[int]) -> Any:
        read.append(len(ids))
        return real(connection, batch_id, ids)

    monkeypatch.setattr(exports, "_ended", ended)

    assert len(lines(filled)) == 5
    assert read == [2, 1, 1, 1]


def test_a_page_is_four_statements_and_reads_no_line_without_a_schema(filled: Filled) -> None:
    """However many tasks a page has. Lines are twice as long as their results."""
    text = "x" * 5000
    for number in range(20):
        filled.succeeded(str(number), completion('{"a": 1}'), line={"id": "i", "prompt": text})
    schema = {"id": "i", "prompt": text, "schema": {"type": "object"}}
    filled.succeeded("with a schema", completion('{"a": 1}'), line=schema)
    statements: list[str] = []
    event.listen(
        filled.database.engine, "before_cursor_execute", lambda *call: statements.append(call[2])
    )

    exported = lines(filled)

    results = ['{"a": 1}'] * 20 + [{"a": 1}]
    assert [line["result"] for line in exported] == results
    pages = [statement for statement in statements if statement.startswith("SELECT")][2:]
    assert len(pages) == 4
    read = [bool(ended.input) for ended in exports._tasks(filled.database.run_singly, 1)]
    assert read == [False] * 20 + [True]


@pytest.mark.parametrize(
    ("note", "headers", "origin"),
    [
        (Origin.INBOX, b"[]", "inbox"),
        (Origin.LOAD, b"[]", "inbox"),
        (Origin.LOAD, None, None),
        (Origin.LETTERS, b"[]", None),
    ],
)
def test_a_task_that_a_record_brought_shows_its_origin(
    filled: Filled, note: Origin, headers: bytes | None, origin: str | None
) -> None:
    """A result of the inbox is told from a load's, whatever batch it is in; OpenAI's file has none.

    Nobody knows who made a batch that was loaded back from dead letters.
    """
    filled.write(batch, {"id": 1, "name": "b", "group_name": "g", "note": note.value})
    task_id = filled.succeeded("a", completion("x"))
    of_task = task_input.c.task_id == task_id
    filled.database.run(
        lambda c: c.execute(update(task_input).where(of_task).values(headers=headers))
    )
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

    (line,) = lines(filled)

    assert line.get("origin") == origin
    assert list(validator.iter_errors(line)) == []


def test_every_line_fits_the_published_schema(filled: Filled) -> None:
    """The JSON Schema of a result line takes each kind of line."""
    filled.succeeded("\u20ac", completion("x"))
    filled.dead("d")
    for status in (Status.PENDING, Status.PROCESSING, Status.RETRYING, Status.CANCELLED):
        filled.add(status.name, status)
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()), validate_formats=True)

    assert [list(validator.iter_errors(line)) for line in lines(filled)] == [[]] * 6
