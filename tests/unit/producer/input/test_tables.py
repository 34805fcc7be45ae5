"""Tables become task lines: CSV as people write it, Parquet, and what is wrong with a row."""

import csv
import gzip
import io
import json
import math
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docllm.producer.input.column_map import column_map
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.input.other_files import NoLinesError
from docllm.producer.input.tables import TableRules, read_table
from docllm.producer.ledger.results.tables import COLUMNS, CsvFile
from docllm.producer.text.spreadsheet import EXPORTED
from docllm.schemas.errors import ConfigError

PROMPT = {"prompt": "Sum up: {document}"}
TEXTS = {"id": "id", "text": "text"}


def rules(columns: Mapping[str, str] | None = TEXTS, **more: Any) -> TableRules:
    return TableRules(columns=columns, common=PROMPT, **more)


def read(
    content: bytes, wanted: TableRules | None = None, said: list[str] | None = None
) -> list[ValidLine | InvalidLine]:
    file = io.BufferedReader(io.BytesIO(content))
    note = [] if said is None else said
    return list(read_table("-", stdin=file, rules=wanted or rules(), note=note.append))


def tasks(lines: list[ValidLine | InvalidLine]) -> list[dict[str, Any]]:
    return [json.loads(line.value) for line in lines if isinstance(line, ValidLine)]


def texts(content: bytes, wanted: TableRules | None = None) -> list[tuple[str, str]]:
    return [(task["id"], task["input"]["text"]) for task in tasks(read(content, wanted))]


def refusals(content: bytes, wanted: TableRules | None = None) -> list[str]:
    return [str(line) for line in read(content, wanted) if isinstance(line, InvalidLine)]


def parquet(columns: Mapping[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def test_columns_become_fields_of_a_line() -> None:
    """Numbers are numbers, a column of the metadata is a text, and an empty cell sets nothing."""
    columns = column_map(
        "metadata.year=Jahr, id=No, text=Body, priority=prio,params.seed=s,params.user=s2,"
        "time_limit_s=max"
    )

    (task, plain) = tasks(
        read(b"No,Body,Jahr,prio,s,s2,max\n7,hi,2024,9,42,me,2.5\n8,ho,,,,,\n", rules(columns))
    )

    assert task == PROMPT | {
        "id": "7",
        "input": {"text": "hi"},
        "metadata": {"year": "2024"},
        "priority": 9,
        "params": {"seed": 42, "user": "me"},
        "time_limit_s": 2.5,
    }
    assert plain == PROMPT | {"id": "8", "input": {"text": "ho"}}


def test_a_line_does_not_depend_on_the_order_of_the_map() -> None:
    """A second load with the same columns, written in another order, is recognized."""
    content = b"id,text,a,b\n1,hi,x,y\n"
    names = ["id=id", "text=text", "metadata.a=a", "metadata.b=b"]

    (first,) = read(content, rules(column_map(",".join(names))))
    (second,) = read(content, rules(column_map(",".join(reversed(names)))))

    assert isinstance(first, ValidLine)
    assert isinstance(second, ValidLine)
    assert first.value == second.value


def test_without_a_map_columns_are_taken_by_their_names() -> None:
    """What nothing is taken from is said."""
    said: list[str] = []
    content = b"id,prompt,metadata.a,colour\n1,hi,x,red\n"

    (task,) = tasks(read(content, TableRules(), said))

    assert task == {"id": "1", "prompt": "hi", "metadata": {"a": "x"}}
    assert len(said) == 1
    assert "nothing is taken from 'colour'" in said[0]


@pytest.mark.parametrize(
    "content",
    [
        b'id,text\na,"x, ""y"";\n\tz"\n',
        b'\xef\xbb\xbfid,text\r\na,"x, ""y"";\n\tz"\r\n',
        b'id;text\na;"x, ""y"";\n\tz"',
        b'id\ttext\n\na\t"x, ""y"";\n\tz"\n\n',
        b'"id"|"text"\na|"x, ""y"";\n\tz"\n',
        b'id, text\na,"x, ""y"";\n\tz"\n',
        'id,text\na,"x, ""y"";\n\tz"\n'.encode("utf-16"),
        gzip.compress(b'id,text\na,"x, ""y"";\n\tz"\n'),
    ],
    ids=["RFC 4180", "BOM and CRLF", "semicolon", "tab", "bar", "blank", "UTF-16", "gzip"],
)
def test_csv_is_read_as_programs_write_it(content: bytes) -> None:
    """Delimiter, packing and encoding are recognized; quotes protect delimiters and line ends."""
    assert texts(content) == [("a", 'x, "y";\n\tz')]


def test_a_bad_row_stops_nothing() -> None:
    """Each error names the row, its column and what to do; rows count from 1 behind the names."""
    content = (
        b"No;Body;prio\n"
        b"a;caf\xc3\xa9;1\n"
        b";x;1\n"
        b"c;;1\n"
        b"d;x\n"
        b"e;x;1;2\n"
        b"f;x;high\n"
        b"g;x\0y;1\n"
        b"h;x\xffy;1\n"
        b'i;"x"y;1\n'
        b"j;x;1\n"
    )
    wanted = rules(column_map("id=No,text=Body,priority=prio"))

    lines = read(content, wanted)

    assert [line.line for line in lines if isinstance(line, ValidLine)] == [1, 10]
    assert [task["id"] for task in tasks(lines)] == ["a", "j"]
    assert [line.split("; ")[0] for line in map(str, lines) if line.startswith("row")] == [
        "row 2: id of column 'No' is empty",
        "row 3: text of column 'Body' is empty",
        "row 4: has 2 cells, and the table 3 columns",
        "row 5: has 4 cells, and the table 3 columns",
        "row 6: priority of column 'prio' is a text",
        "row 7: text of column 'Body' holds a NUL byte, which is no text",
        "row 8: text of column 'Body' is not UTF-8 at character 2",
        "row 9: begins at line 10 and is no CSV (';' expected after '\"')",
    ]


def test_a_bad_row_can_be_repaired_where_it_has_a_line() -> None:
    """The text of its reject is a task line, which may be loaded from the rejects."""
    (bad,) = read(b"id,text,p\na,x,high\n", rules(TEXTS | {"priority": "p"}))

    assert isinstance(bad, InvalidLine)
    assert json.loads(bad.text or "") == {
        "id": "a",
        "input": {"text": "x"},
        "priority": "high",
        "prompt": PROMPT["prompt"],
    }


def test_an_open_quote_ends_the_reading_and_is_named() -> None:
    """It takes the rest of the file into one cell, and no more than some MiB into memory."""
    content = b'id,text\na,x\nb,"y\nc,z\n'

    assert texts(content) == [("a", "x")]
    (damage,) = refusals(content)
    assert damage.startswith("row 2: begins at line 3 and is no CSV (unexpected end of data)")

    large = b'id,text\na,x\nb,"' + b"yyyyyyyyy\n" * 1_800_000
    tracemalloc.start()
    lines = read(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(lines[-1], InvalidLine)
    assert "it has a row of more than 6 MiB; is a quote not closed?" in lines[-1].error
    assert peak < 48 << 20


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty; the first row has the names of the columns"),
        (b"\n\r\n", "the file is empty"),
        ("id,text\na,caf\xe9\n".encode("latin-1"), "not UTF-8, but perhaps Windows-1252"),
        ("id,text\na,x\n".encode("utf-16-le"), "is UTF-16 without a byte order mark; save it as"),
        (b'{"id": "a", "prompt": "x"}\n', "has JSON, not a table; rename it"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "is a PDF document"),
        (b'"id,text\na,x\n', "its first row is no CSV"),
        (parquet({"id": ["a"]})[:50], "cannot be read: "),
        (gzip.compress(parquet({"id": ["a"]})), "is Parquet in an archive; unpack it first"),
    ],
)
def test_a_file_that_is_no_table_is_refused_once(content: bytes, words: str) -> None:
    """Nothing is loaded of it."""
    with pytest.raises(NoLinesError) as refused:
        read(content)

    assert words in f"{refused.value.error}; {refused.value.fix}"


def test_a_byte_that_is_no_letter_spoils_its_row_only() -> None:
    """If other rows have letters in UTF-8, the file is in UTF-8."""
    lines = read("id,text\na,é\n".encode() + b"b,\xe9\n")

    assert [task["id"] for task in tasks(lines)] == ["a"]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("header", "wanted", "words"),
    [
        ("a,b", rules(), "has no column 'id'; its columns are: 'a', 'b'"),
        ("ids,text", rules(), "has no column 'id'; did you mean 'ids'?"),
        ("id,text,text", rules(), "has 2 columns 'text'"),
        ("a,text", rules(None), "--map id=COLUMN (with all others that are needed), or number"),
        ("a,text", rules({"text": "text"}), "or number the rows with --number-rows"),
        ("id,text", rules(TEXTS, number=True), "--number-rows makes the ids, and --map"),
        ("id,text", rules({"id": "id"}), "--prompt has {document}, and no column holds the text"),
        ("id,text,prompt", rules(None), "--prompt is given, and column 'prompt' holds it too"),
        ("id,text,uri", rules(None), "has columns for text and uri"),
        ("id,text", TableRules(), "no column of - holds the prompt; say what to do"),
        ("id,status,result,error.code", rules(None), "exported; name the columns to take: --map"),
    ],
)
def test_columns_that_make_no_task_are_refused_before_the_first_row(
    header: str, wanted: TableRules, words: str
) -> None:
    """The error has what to write."""
    with pytest.raises(ConfigError) as refused:
        read(f"{header}\n1,2,3\n".encode(), wanted)

    assert words in str(refused.value)


def test_rows_without_ids_are_numbered_on_request() -> None:
    """A bad row keeps its number, so the others keep theirs when it is repaired."""
    content = b"id,text\nx,one\n,\ny,three\n"

    assert texts(content, rules({"text": "text"}, number=True)) == [
        ("row-1", "one"),
        ("row-3", "three"),
    ]
    assert texts(content, rules(None, number=True))[0] == ("row-1", "one")


def test_an_exported_table_is_read_without_its_apostrophes() -> None:
    """Export writes them for spreadsheets, where a text begins as a formula does."""
    answers = ["=1+1", "-5", "'quoted'", "@x", "plain"]
    file = io.BytesIO()
    table = CsvFile(file)
    table.begin(COLUMNS)
    for number, answer in enumerate(answers):
        table.add({"id": f"-{number}x", "result": answer})

    read_back = texts(file.getvalue(), rules(column_map("id=id,text=result")))

    assert read_back == [(f"-{number}x", answer) for number, answer in enumerate(answers)]
    assert tuple(COLUMNS)[: len(EXPORTED)] == EXPORTED
    # Another's apostrophe stays as it is.
    assert texts(b"id,text\na,'=x\n") == [("a", "'=x")]


def test_parquet_has_types() -> None:
    """Texts are made of numbers and times where a field is a text; metadata keeps its types."""
    when = datetime(2027, 1, 31, 18, tzinfo=UTC)
    content = parquet(
        {
            "id": [1.0, 2.0],
            "text": pa.array(["a", "b"]).dictionary_encode(),
            "raw": [b"x", None],
            "when": [when, None],
            "n": [3, None],
            "f": [1.5, math.nan],
            "parts": [[1, 2], None],
            "cost": [Decimal("1.50"), None],
            "day": [date(2027, 1, 31), None],
            "result.party": ["P", "Q"],
        }
    )
    columns = column_map(
        "id=id,text=text,not_before=when,priority=n,params.temperature=f,metadata.parts=parts,"
        "metadata.cost=cost,metadata.day=day,metadata.party=result.party,metadata.raw=raw"
    )

    full, empty = tasks(read(content, rules(columns)))

    assert full == PROMPT | {
        "id": "1",
        "input": {"text": "a"},
        "not_before": "2027-01-31T18:00:00+00:00",
        "priority": 3,
        "params": {"temperature": 1.5},
        "metadata": {
            "parts": [1, 2],
            "cost": "1.50",
            "day": "2027-01-31",
            "party": "P",
            "raw": "x",
        },
    }
    assert empty == PROMPT | {"id": "2", "input": {"text": "b"}, "metadata": {"party": "Q"}}


def test_parquet_cells_that_are_no_text_are_refused() -> None:
    """A list is no text, and bytes need be UTF-8."""
    content = parquet({"id": ["a", "b"], "text": [[1], [2]], "raw": [b"\xff", b"x"]})

    assert "row 1: text is a list or an object, not a text" in refusals(content)[0]
    wanted = rules(column_map("id=id,text=raw"))
    assert "row 1: text of column 'raw' is not UTF-8" in refusals(content, wanted)[0]


def test_parquet_is_read_in_parts_and_only_where_it_is_needed() -> None:
    """A row group of many MiB is never in memory as objects of Python."""
    rows = 3_000
    content = parquet(
        {
            "id": list(range(rows)),
            "text": [f"{row}" for row in range(rows)],
            "other": ["x" * 40_000] * rows,
        },
        row_group_size=rows,
    )
    file = io.BufferedReader(io.BytesIO(content))
    tracemalloc.start()
    count = sum(
        isinstance(line, ValidLine)
        for line in read_table("-", stdin=file, rules=rules(), note=print)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == rows
    assert peak < 8 << 20


def test_parquet_comes_through_a_pipe() -> None:
    """Its index is at the end, so it is kept in a temporary file."""
    raw = io.BytesIO(parquet({"id": ["a"], "text": ["x"]}))
    raw.seekable = lambda: False  # type: ignore[method-assign]
    (line,) = read_table("-", stdin=io.BufferedReader(raw), rules=rules(), note=print)

    assert isinstance(line, ValidLine)


def test_parquet_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the command that installs it is shown."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"needs the extra `archive`; run: pip install"):
        read(b"PAR1")


def test_a_map_takes_names_with_commas() -> None:
    """A comma separates only before the name of a field."""
    assert column_map("id=No, of,text=a=b,metadata.x y=c,d") == {
        "id": "No, of",
        "text": "a=b",
        "metadata.x y": "c,d",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id", "'id' is not FIELD=COLUMN"),
        ("id=", "'id=' is not FIELD=COLUMN"),
        ("=a", "'' is no field"),
        ("txt=a", "did you mean text?"),
        ("colour=a", "known are: id, type, prompt"),
        ("id=a,id=b", "id has two columns"),
        ("metadata.=a", "'metadata.' is no field"),
    ],
)
def test_a_wrong_map_is_a_wrong_command(text: str, words: str) -> None:
    """The error names the part that is wrong."""
    with pytest.raises(ValueError, match=words.replace("?", r"\?").replace(".", r"\.")):
        column_map(text)


def test_what_csv_writers_write_is_read() -> None:
    """Python's own writer is one of them, in each of its dialects that has a delimiter."""
    cells = ["a,b", 'say "x"', "two\r\nlines", "'", "  blank ", "a\u2028b", "x;y\tz|"]
    for dialect in ("excel", "excel-tab", "unix"):
        file = io.StringIO()
        csv.writer(file, dialect).writerows(
            [["id", "text"], *([f"{n}", cell] for n, cell in enumerate(cells))]
        )
        assert [text for _, text in texts(file.getvalue().encode())] == cells
