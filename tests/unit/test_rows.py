"""Rows of Python programs as task lines."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.rows import Rows
from docllm.schemas.errors import ConfigError

PROMPT = {"prompt": "Summarize: {document}"}


class Index:
    """The index of a DataFrame, called `number`."""

    name = "number"


class Frame:
    """What rows need of a DataFrame of pandas: missing values are NaN."""

    columns: tuple[str, ...] = ("body", "metadata.year")
    index = Index()

    def itertuples(self, *, index: bool, name: None) -> Iterable[tuple[Any, ...]]:
        assert (index, name) == (True, None)
        return [(7, "one", 2026), (8, float("nan"), 2027)]


def lines(rows: Any, **given: Any) -> list[dict[str, Any] | str]:
    """Return the task of each row, or what is wrong with it."""
    found: list[dict[str, Any] | str] = []
    for line in Rows(rows=rows, **({"common": PROMPT} | given)).lines():
        if isinstance(line, ValidLine):
            found.append(orjson.loads(line.value))
        else:
            assert isinstance(line, InvalidLine)
            found.append(str(line))
    return found


def test_a_row_becomes_the_line_that_a_table_has() -> None:
    """Columns that are called as fields are those fields; whole numbers are ids too."""
    row = {"id": 7, "text": "one", "model": "small", "metadata": {"year": 2026}, "other": 1}

    assert lines([row]) == [
        {
            "id": "7",
            "input": {"text": "one"},
            "model": "small",
            "metadata": {"year": 2026},
            "prompt": "Summarize: {document}",
        }
    ]


def test_columns_have_the_names_that_are_given() -> None:
    """The ids may also be numbers of rows."""
    row = {"number": "n-1", "body": "one"}

    assert lines([row], id="number", text="body") == [
        {"id": "n-1", "input": {"text": "one"}} | PROMPT
    ]
    assert lines([row], number=True, text="body") == [
        {"id": "row-1", "input": {"text": "one"}} | PROMPT
    ]


def test_the_index_of_a_data_frame_is_the_id() -> None:
    """A missing text makes a bad row."""
    first, second = lines(Frame(), text="body")

    assert first == {"id": "7", "input": {"text": "one"}, "metadata": {"year": 2026}} | PROMPT
    assert isinstance(second, str)
    assert second.startswith("row 2: text of column 'body' is empty")


def test_the_index_of_a_data_frame_has_the_name_that_it_has() -> None:
    """Its name may be given as that of the id; another one is no column."""
    first, _ = lines(Frame(), text="body", id="number")
    (other, _) = lines(Frame(), text="body", id="key")

    assert first == {"id": "7", "input": {"text": "one"}, "metadata": {"year": 2026}} | PROMPT
    assert isinstance(other, str)
    assert other.startswith("row 1: id has no column 'key'")


def test_two_columns_of_one_name_are_refused() -> None:
    """As in a table that is loaded from a file."""
    frame = Frame()
    frame.columns = ("body", "body")

    with pytest.raises(ConfigError, match="rows has 2 columns 'body'; its columns are: 'body', "):
        lines(frame, text="body")


def test_task_lines_may_be_json() -> None:
    """Empty lines, as at the end of a file, are left out but counted."""
    good, second, third = lines(
        ['{"id": "a", "prompt": "x"}\n', b"\n", b'{"id": "b"', '{"id": "c",\n"prompt": "x"}'],
        common={},
    )

    assert good == {"id": "a", "prompt": "x"}
    assert isinstance(second, str)
    assert second.startswith("row 3: is not JSON")
    assert third == "row 4: has several lines; write each task in one line"


def test_without_a_prompt_each_row_is_a_whole_task_line() -> None:
    """It is checked as a line of a file."""
    row = {"id": "a", "prompt": "Say hello."}

    first, second, third = lines([row, {"id": "b", "prompt": 5}, {"id": {1}}], common={})

    assert first == row
    assert second == "row 2: prompt is a whole number; write a text"
    assert isinstance(third, str)
    assert third.startswith("row 3: cannot be JSON: Type is not JSON serializable: set;")


@pytest.mark.parametrize(
    ("row", "given", "problem"),
    [
        ("text", {}, "row 1: is a str, not a dict; write dicts"),
        ({"text": "one"}, {}, "row 1: id is missing; name their column with id='COLUMN'"),
        ({"id": "a"}, {}, "row 1: text is missing; name the column of the documents"),
        ({"id": "a", "text": "x"}, {"text": "bdy"}, "row 1: text has no column 'bdy'"),
        ({"id": "a", "text": {"deep": 1}}, {}, "row 1: text is a list or an object"),
        (
            {"id": "a", "text": "x", "model": "m"},
            {"common": PROMPT | {"model": "n"}},
            "row 1: model is given for all rows, and in column 'model' too; leave one of them out",
        ),
    ],
)
def test_a_bad_row_says_what_is_wrong_and_others_go_on(
    row: Any, given: dict[str, Any], problem: str
) -> None:
    """Row, field and fix are named."""
    bad, good = lines([row, {"id": "b", "text": "one", "bdy": "two"}], **given)

    assert isinstance(bad, str)
    assert bad.startswith(problem)
    assert isinstance(good, dict)
    assert good["id"] == "b"


@pytest.mark.parametrize("rows", ["id", {"id": "a"}, 5])
def test_what_is_no_rows_at_all_is_refused(rows: object) -> None:
    """One dict is not taken for the rows of its keys."""
    with pytest.raises(ConfigError, match="give a list of dicts"):
        lines(rows)
