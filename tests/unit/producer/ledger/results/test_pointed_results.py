"""An export follows the pointers to results outside the ledger."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson
import pytest

from docllm.producer.ledger.results import pointed_results
from docllm.producer.ledger.results.pointed_results import follow, no_outputs
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    Result,
    docllm_line,
    openai_line,
)
from docllm.schemas.task.result.codec import COMPLETION, POINTER, VALUE
from docllm.schemas.task.result.output_pointer import OutputPointer, output_of
from docllm.schemas.task.states import Status

LINE = b'{"id": "a", "prompt": "p"}'
ENDED = datetime(2027, 1, 31)  # noqa: DTZ001 - as the ledger has it
ANSWER = orjson.dumps({"id": "c", "choices": [{"message": {"content": "Fine."}}]})


def ended(key: str, codec: int, body: bytes) -> ExportedTask:
    result = Result(codec=codec, body=body, model="m", call_id="", created_at=ENDED)
    return ExportedTask(
        task_id=1,
        key=key,
        status=Status.SUCCEEDED,
        counted_attempts=0,
        input=LINE,
        tokens_in=0,
        tokens_out=0,
        cost_micro=0,
        result=result,
        letter=None,
    )


class Objects:
    """Objects in memory; `reads` has how many are read together."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes | Exception] = {}
        self.reads: list[int] = []

    def pointed(self, key: str, stored: bytes = ANSWER, codec: int = COMPLETION) -> ExportedTask:
        output = output_of(key=key, batch="b", codec=codec, stored=stored)
        uri = f"s3://b/out/{key}.json"
        self.contents[uri] = output.content
        return ended(key, POINTER, output.pointer(uri).stored())

    def __call__(self, pointers: Sequence[OutputPointer]) -> Sequence[bytes | Exception]:
        self.reads.append(len(pointers))
        return [self.contents[pointer.uri] for pointer in pointers]


def exported(
    tasks: Sequence[ExportedTask], objects: Objects
) -> tuple[list[dict[str, Any]], list[str]]:
    lost: list[str] = []
    lines = [docllm_line(task) or b"" for task in follow(tasks, objects, lost.append)]
    return [orjson.loads(line) for line in lines], lost


def test_a_line_is_that_of_a_result_in_the_ledger_and_names_the_object() -> None:
    """Whoever reads an export needs not know where results are kept."""
    objects = Objects()
    stored, pointed = ended("a", COMPLETION, ANSWER), objects.pointed("a")

    (one, two), lost = exported([stored, pointed], objects)

    assert two == one | {"output": "s3://b/out/a.json"}
    assert not lost
    (followed,) = follow([pointed], objects, lost.append)
    assert openai_line(followed) == openai_line(stored)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (OSError("no such file"), "no such file"),
        (b"{}", "it has 2 bytes"),
    ],
)
def test_a_lost_object_costs_its_own_result_only(content: bytes | Exception, reason: str) -> None:
    """The line says what is wrong, and its neighbours are whole."""
    objects = Objects()
    tasks = [objects.pointed(key) for key in "abc"]
    objects.contents["s3://b/out/b.json"] = content

    lines, lost = exported(tasks, objects)

    assert [line["result"] for line in lines] == ["Fine.", None, "Fine."]
    assert lines[1]["error"]["code"] == "UNREADABLE"
    assert reason in lines[1]["error"]["message"]
    assert lines[1]["output"] == "s3://b/out/b.json"
    assert len(lost) == 1
    assert "s3://b/out/b.json" in lost[0]


def test_objects_are_read_together_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of tasks stays, also with results of both kinds."""
    monkeypatch.setattr(pointed_results, "MAX_OBJECTS", 3)
    objects = Objects()
    tasks = [
        ended("0", VALUE, b"0"),
        *(objects.pointed(str(number), b"%d" % number, VALUE) for number in range(1, 5)),
        ended("5", VALUE, b"5"),
        objects.pointed("6", b"6", VALUE),
    ]

    lines, _ = exported(tasks, objects)

    assert [line["result"] for line in lines] == list(range(7))
    assert objects.reads == [3, 2]
    monkeypatch.setattr(pointed_results, "MAX_BYTES", 1)
    exported(tasks, objects)
    assert objects.reads[2:] == [1] * 5


def test_a_damaged_pointer_is_one_line() -> None:
    """A damaged row must not end an export."""
    ((line,), lost) = exported([ended("a", POINTER, b"{")], Objects())
    assert line["error"]["code"] == "UNREADABLE"
    assert len(lost) == 1
    (task,) = follow([Objects().pointed("a")], no_outputs, lost.append)
    assert task.result is None
