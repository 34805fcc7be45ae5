"""Result lines as tables: cells, columns and kinds, and nothing lost."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet
import pytest

from docllm.producer.ledger.results.tables import (
    COLUMNS,
    CsvFile,
    FlatTable,
    JsonFile,
    ParquetFile,
    Table,
)

SCHEMA = Path(__file__).parents[5] / "schemas" / "json" / "result_line.json"


def fields(key: str, result: Any, **more: Any) -> dict[str, Any]:
    """Return the fields of a line; JSON results come as fragments, as in an export."""
    if not isinstance(result, str | orjson.Fragment | None):
        result = orjson.Fragment(json.dumps(result))
    known = {
        "id": key, "status": "succeeded", "result": result, "error": None, "attempts": 1,
        "model": "m", "route": None, "tokens_in": 10, "tokens_out": 5, "cost": 0.5,
        "finished_at": "2027-01-31T18:00:00.120000Z",
    }  # fmt: skip
    return known | more


def csv_rows(lines: Iterable[Mapping[str, Any]], *, flat: bool = False) -> list[dict[str, str]]:
    out = io.BytesIO()
    table = FlatTable(CsvFile(out)) if flat else Table(CsvFile(out))
    for line in lines:
        table.write(line)
    table.end()
    return list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))


def test_every_field_of_a_result_line_has_a_column() -> None:
    """A field that is added to result lines must get a column, or tables would lose it."""
    known = set(json.loads(SCHEMA.read_text())["properties"])

    assert known - {"error"} | {"error.code", "error.message"} == COLUMNS.keys()


def test_a_cell_has_its_text_as_it_is() -> None:
    """Quotes, commas and line ends survive, and lines end with CR LF."""
    text = 'He said: "a, b"\r\nand\nleft'
    out = io.BytesIO()
    table = Table(CsvFile(out))
    table.write(fields("ü", text))
    table.end()

    assert out.getvalue().startswith(b"id,status,result,error.code,")
    assert out.getvalue().count(b"\r\n") == 3
    (row,) = csv_rows([fields("ü", text)])
    assert (row["id"], row["result"], row["tokens_in"], row["cost"]) == ("ü", text, "10", "0.5")
    assert row["route"] == row["error.code"] == ""


def test_an_error_and_notes_have_columns() -> None:
    """An error is two columns, and a list is JSON in its cell."""
    error = {"code": "BAD_REQUEST", "message": "no such model"}
    (row,) = csv_rows([fields("a", None, error=error, omitted=["page 3"], truncated_input=True)])

    assert (row["error.code"], row["error.message"]) == ("BAD_REQUEST", "no such model")
    assert (row["omitted"], row["truncated_input"]) == ('["page 3"]', "true")


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "-1-2", "=5"])
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    """A spreadsheet would run what a stranger's document has made a model say."""
    (row,) = csv_rows([fields(text, text)])

    assert row["id"] == row["result"] == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+3.25", "-1.5e-3", "-.5", "5-", "x=1", "'=1"])
def test_numbers_and_other_texts_get_none(text: str) -> None:
    """A negative number stays a number."""
    (row,) = csv_rows([fields("a", text)])

    assert row["result"] == text


def test_a_field_of_a_result_that_looks_like_a_formula_gets_an_apostrophe() -> None:
    """The fields of a flattened result are as hostile as the result."""
    (row,) = csv_rows([fields("a", {"=x": "=1", "n": -1})], flat=True)

    assert (row["result.=x"], row["result.n"]) == ("'=1", "-1")


def test_a_mark_of_byte_order_comes_on_request() -> None:
    out = io.BytesIO()
    Table(CsvFile(out, bom=True)).end()

    assert out.getvalue().startswith(b"\xef\xbb\xbfid,")


def test_json_stays_as_it_was_written() -> None:
    """Numbers that no reader of JSON in Python would keep stay in the cell."""
    line = fields("a", orjson.Fragment(b'{"n": 1e400, "m": 12345678901234567890123}'))

    assert csv_rows([line])[0]["result"] == '{"n": 1e400, "m": 12345678901234567890123}'


@pytest.mark.parametrize(
    ("written", "cell"), [(b'"text"', "text"), (b"null", ""), (b"5", "5"), (b'"{}"', "{}")]
)
def test_a_value_of_a_handler_is_text_if_it_is_one(written: bytes, cell: str) -> None:
    """A text that a handler returned has no quotes around it, flattened or not."""
    line = fields("a", orjson.Fragment(written))

    assert csv_rows([line])[0]["result"] == cell
    assert csv_rows([line], flat=True)[0]["result"] == cell


def test_flat_results_have_columns_of_their_own() -> None:
    """All fields of all results have a column; results that are no objects stay in `result`."""
    rows = csv_rows(
        [
            fields("a", {"total": 12.5, "paid": True, "items": [{"x": 1}]}),
            fields("b", {"total": 3, "party": "Müller"}),
            fields("c", "no JSON"),
            fields("d", [1, 2]),
        ],
        flat=True,
    )

    names = ("result", "result.total", "result.paid", "result.items", "result.party")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("", "12.5", "true", '[{"x":1}]', ""),
        ("", "3", "", "", "Müller"),
        ("no JSON", "", "", "", ""),
        ("[1, 2]", "", "", "", ""),
    ]


def test_fields_beyond_the_limit_stay_in_the_result() -> None:
    """A model that invents names cannot make a table without end, and nothing is lost."""
    out = io.BytesIO()
    table = FlatTable(CsvFile(out), most=2)
    table.write(fields("a", {"x": 1, "y": 2, "z": 3}))
    table.write(fields("b", {"w": 4}))

    assert table.end() == 2

    rows = list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))
    assert [(row["result"], row["result.x"], row["result.y"]) for row in rows] == [
        ('{"z":3}', "1", "2"),
        ('{"w":4}', "", ""),
    ]


def test_an_object_that_is_nested_too_deep_stays_whole() -> None:
    """It costs no other line anything."""
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    lines = [fields("a", orjson.Fragment(deep)), fields("b", {"x": 1})]

    rows = csv_rows(lines, flat=True)

    assert (rows[0]["result"], rows[1]["result.x"]) == (deep.decode(), "1")


def test_lines_of_a_flat_table_have_all_columns() -> None:
    """Readers that infer a schema from the first lines find each name in each line."""
    out = io.BytesIO()
    table = FlatTable(JsonFile(out))
    table.write(fields("a", {"x": 12345678901234567890123}))
    table.write(fields("b", {"y": None}))
    table.end()

    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.keys() == second.keys() == COLUMNS.keys() | {"result.x", "result.y"}
    assert (first["result.x"], second["result.y"]) == ("12345678901234567890123", None)


def test_parquet_has_kinds() -> None:
    """Columns have the kinds of their values; mixed ones are text, and nothing is rounded."""
    out = io.BytesIO()
    table = FlatTable(ParquetFile(out))
    table.write(fields("a", {"n": 1, "f": 1, "b": True, "mixed": 1, "big": 2**70, "none": None}))
    table.write(fields("b", {"n": 2, "f": 2.5, "b": None, "mixed": "x", "big": 1}))
    table.end()

    read = pyarrow.parquet.read_table(io.BytesIO(out.getvalue()))
    kinds = {field.name: str(field.type) for field in read.schema}
    assert kinds["finished_at"] == "timestamp[us, tz=UTC]"
    assert [kinds[f"result.{name}"] for name in ("n", "f", "b", "mixed", "big", "none")] == [
        "int64", "double", "bool", "string", "string", "string",
    ]  # fmt: skip
    first, second = read.to_pylist()
    assert (first["result.big"], first["result.mixed"]) == (str(2**70), "1")
    assert (second["result.f"], second["result.b"], second["result"]) == (2.5, None, None)
    assert first["finished_at"].isoformat() == "2027-01-31T18:00:00.120000+00:00"


def test_parquet_without_rows_has_its_columns() -> None:
    """An export of nothing is a table that every reader reads."""
    out = io.BytesIO()
    Table(ParquetFile(out)).end()

    assert pyarrow.parquet.read_table(io.BytesIO(out.getvalue())).column_names == list(COLUMNS)


def test_row_groups_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group ends at a number of rows, or of bytes."""
    monkeypatch.setattr("docllm.producer.ledger.results.tables._PAGE_ROWS", 4)
    monkeypatch.setattr("docllm.producer.ledger.results.tables._PAGE_BYTES", 1000)
    out = io.BytesIO()
    table = Table(ParquetFile(out))
    for number in range(6):
        table.write(fields(str(number), "short"))
    table.write(fields("long", "x" * 2000))
    table.write(fields("last", "x"))
    table.end()

    file = pyarrow.parquet.ParquetFile(io.BytesIO(out.getvalue()))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [4, 3, 1]
