"""Records of other people's producers: their content, and their batch."""

import asyncio
from functools import partial

import orjson
import pytest

from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading import foreign_records
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.settings.config import Config, TypeConfig
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record.envelope import RawHeaders

LINE = b'{"id":"a","prompt":"p"}'


def read(value: bytes, headers: RawHeaders = ()) -> tuple[str, NewTask]:
    return foreign_records.task_of(
        key=None, value=value, headers=headers, group="group", max_attempts_of=lambda _: 5
    )


@pytest.mark.parametrize(
    "value",
    [
        b"\xef\xbb\xbf" + LINE,
        LINE + b"\r\n",
        LINE + b"\n",
        LINE + b"\r",
        b"\xef\xbb\xbf" + LINE + b"\r\n",
    ],
)
def test_marks_and_line_ends_are_not_content(value: bytes) -> None:
    """A byte order mark and a line end are no content: the line without them is the same task.

    A file that is produced line by line brings them along.
    """
    assert read(value) == read(LINE)


def test_a_line_that_asks_for_more_time_than_its_type_has_is_no_task() -> None:
    """It is refused as a load refuses it; a type that only other agents know is not judged."""
    config = Config(types={"short": TypeConfig(time_limit_s=60)})

    def record(kind: str, asked_s: int) -> foreign_records.ReadLine:
        line = {"id": "a", "type": kind, "prompt": "p", "time_limit_s": asked_s}
        reading = foreign_records.read_apart(
            key=None,
            value=orjson.dumps(line),
            headers=(),
            group="group",
            max_attempts_of=config.max_attempts_of,
            limit_of=partial(limit_of, config),
            apart=InlineExecutor(),
            failed=lambda _: None,
        )
        return asyncio.run(reading)

    assert record("short", 61) == (
        "time_limit_s is 61, and an attempt of type short has 60 s at most; "
        "write a smaller number, or a larger time_limit_s into [types.short]"
    )
    assert [record(*of)[0] for of in (("short", 60), ("elsewhere", 3600))] == ["group-direct"] * 2


def test_other_white_space_is_content() -> None:
    """Other white space is content, as it is in a file."""
    assert read(LINE + b" ")[1].digest != read(LINE)[1].digest


@pytest.mark.parametrize("name", [b"\xff", b"\xfe", b"caf\xe9", "a\ufffd".encode()])
def test_an_unreadable_batch_name_is_refused(name: bytes) -> None:
    """An unreadable batch name is refused: different names would all be one batch.

    The quarantine stores such names with a replacement character.
    """
    with pytest.raises(LineError, match="docllm-batch: is not UTF-8"):
        read(LINE, [("docllm-batch", name)])


def test_a_batch_is_named_by_the_last_header_that_has_a_name() -> None:
    """The last batch header with a value counts; without one, the group's own batch does."""
    headers = [
        ("docllm-batch", b"first"),
        ("docllm-batch", "caf\u00e9".encode()),
        ("docllm-batch", b""),
        ("docllm-batch", None),
    ]

    assert [read(LINE, record_headers)[0] for record_headers in (headers, ())] == [
        "caf\u00e9",
        "group-direct",
    ]


def test_the_error_for_a_whole_file_in_one_record_says_that_a_record_is_a_line() -> None:
    """The error once said "unexpected content after document at column 1".

    kcat without -l makes one record of a whole file.
    """
    with pytest.raises(
        LineError, match="one record is one line, and this one has several; with kcat add -l"
    ):
        read(LINE + b"\n" + LINE)

    with pytest.raises(LineError) as one_line:
        read(LINE + LINE + b"\n")
    with pytest.raises(LineError) as pretty:
        read(b'{"id":"a",\n"promt":"p"}')
    assert "kcat" not in f"{one_line.value} {pretty.value}"
