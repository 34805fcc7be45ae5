"""The formats of an archive's files: lines of JSON by gzip, or Parquet.

Equal lines make equal bytes, so a file that an interrupted run has written is recognized.
"""

import gzip
import io
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import orjson

from docllm.producer.arrow import arrow, require_arrow

_LEVEL = 6
_ROWS = 10_000  # rows of a group in a Parquet file
_PARQUET = "the format parquet"


class ArchiveFormat(StrEnum):
    """The format of an archive's files."""

    JSONL = "jsonl"
    PARQUET = "parquet"


def suffix(file_format: ArchiveFormat) -> str:
    """Return the end of the names of files."""
    return {ArchiveFormat.JSONL: "jsonl.gz", ArchiveFormat.PARQUET: "parquet"}[file_format]


def require_library(file_format: ArchiveFormat) -> None:
    """Raise ConfigError if the library of the format is not installed."""
    if file_format is ArchiveFormat.PARQUET:
        require_arrow(_PARQUET)


def writer(file_format: ArchiveFormat) -> "_JsonLines | _ParquetWriter":
    """Return a writer of lines into a new file; `content` is the whole file."""
    return _ParquetWriter() if file_format is ArchiveFormat.PARQUET else _JsonLines()


def lines_of(file_format: ArchiveFormat, content: bytes) -> Iterator[bytes]:
    """Yield the lines of a file. Raises an error of the format's library if it is damaged."""
    if file_format is ArchiveFormat.PARQUET:
        yield from _parquet_lines(content)
    else:
        yield from gzip.GzipFile(fileobj=io.BytesIO(content))


class _JsonLines:
    def __init__(self) -> None:
        self._raw = io.BytesIO()
        # A file name and a time in it would make equal lines differ.
        self._file = gzip.GzipFile(
            filename="", mode="wb", fileobj=self._raw, compresslevel=_LEVEL, mtime=0
        )

    def add(self, line: bytes) -> None:
        self._file.write(line)

    def content(self) -> bytes:
        self._file.close()
        return self._raw.getvalue()


# The columns of a Parquet file before `line`, with the field of the line and its Arrow type.
_COLUMNS: tuple[tuple[str, tuple[str, str], str], ...] = (
    ("task_id", ("task", "id"), "int64"),
    ("type", ("task", "type"), "string"),
    ("tenant", ("task", "tenant"), "string"),
    ("created_at", ("task", "created_at"), "string"),
    ("input", ("input", "body"), "string"),
    ("model", ("result", "model"), "string"),
    ("route", ("result", "route"), "string"),
    ("tokens_in", ("result", "tokens_in"), "int64"),
    ("tokens_out", ("result", "tokens_out"), "int64"),
    ("cost_micro", ("result", "cost_micro"), "int64"),
    ("unpriced", ("result", "unpriced"), "int64"),
    ("answered_at", ("result", "created_at"), "string"),
    ("error_class", ("dead_letter", "error_class"), "string"),
    ("error_text", ("dead_letter", "error_text"), "string"),
    ("died_at", ("dead_letter", "died_at"), "string"),
)


class _ParquetWriter:
    """A column for each field that people filter by, and `line` with the whole line."""

    def __init__(self) -> None:
        self._arrow, parquet = arrow(_PARQUET)
        texts = ("id", "status", "answer")
        named = [(name, self._arrow.string()) for name in texts]
        named += [(name, getattr(self._arrow, kind)()) for name, _, kind in _COLUMNS]
        self._schema = self._arrow.schema([*named, ("line", self._arrow.large_binary())])
        self._raw = io.BytesIO()
        self._file = parquet.ParquetWriter(self._raw, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, line: bytes) -> None:
        self._rows.append(_row(line))
        if len(self._rows) == _ROWS:
            self._flush()

    def content(self) -> bytes:
        self._flush()
        self._file.close()
        return self._raw.getvalue()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def _row(line: bytes) -> dict[str, Any]:
    """Return a row; of a line that nests too deep to be read, only the line itself."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {"line": line}
    answer = value["answer"]
    row = {"id": value["id"], "status": value["status"], "line": line}
    row["answer"] = answer if answer is None else orjson.dumps(answer).decode()
    for name, (table, column), kind in _COLUMNS:
        found = (value[table] or {}).get(column)
        fits = isinstance(found, int if kind == "int64" else str)
        row[name] = found if fits else None
    return row


def _parquet_lines(content: bytes) -> Iterator[bytes]:
    _, parquet = arrow(_PARQUET)
    for group in parquet.ParquetFile(io.BytesIO(content)).iter_batches(_ROWS, columns=["line"]):
        for line in group.column(0):
            yield line.as_py()
