"""The input of `load`, with its batch and its rejects file.

The input is task lines or a table, from a file, a pipe or standard input, or documents.
"""

import argparse
import asyncio
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from docllm.producer.cli.options.strict_parser import Imported
from docllm.producer.input.column_map import column_map
from docllm.producer.input.conversion import Conversion, TextSizes
from docllm.producer.input.document_source import UnusableError
from docllm.producer.input.documents import (
    DocumentReader,
    documents_batch,
    question_of,
)
from docllm.producer.input.excluded_files import own_files
from docllm.producer.input.file_tree import FileTree
from docllm.producer.input.lines import (
    PACKINGS,
    STDIN,
    InvalidLine,
    Position,
    ValidLine,
    batch_name,
    read_lines,
)
from docllm.producer.input.object_documents import objects_batch, read_objects
from docllm.producer.input.rejects import rejects_path
from docllm.producer.input.tables import TableRules, read_table
from docllm.producer.screen.output import note
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.task.batch_name import RULE, is_batch_name

_PART_BYTES = 1 << 20
_TABLES = (".csv", ".tsv", ".parquet")
_LINES = (".jsonl", ".json", ".ndjson")
COMMON = ("prompt", "model", "type", "schema")  # what all documents or rows have in common
DOCUMENTS_ONLY = ("by_uri", "convert")
TABLES_ONLY = ("map", "number_rows")
# Returns the line that a batch has under an id.
FindLine = Callable[[str], Coroutine[Any, Any, bytes | None]]
# Agents have the converters, and load nothing of theirs unless a document needs it.
_CONVERSION = Imported("docllm.agent.documents.for_load:LoadConversion")


class Conversions:
    """Opens converters at their first use, on any thread, and closes them at the end of a load."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened: Any = None
        self._is_closed = False

    def open(self) -> Conversion:
        """Return the converters."""
        self._require_open()
        if self._opened is None:
            self._opened = _CONVERSION(self._loop)
        opened: Conversion = self._opened
        return opened

    def stored_by(self, find: FindLine) -> Callable[[str], bytes | None]:
        """Return a call for other threads of `find`."""

        def stored(name: str) -> bytes | None:
            self._require_open()
            return asyncio.run_coroutine_threadsafe(find(name), self._loop).result()

        return stored

    async def close(self) -> None:
        """End the converting processes, if there are any, and whoever still waits for them."""
        self._is_closed = True
        if self._opened is not None:
            await self._opened.close()

    def _require_open(self) -> None:
        """Raise UnusableError after the end, since the event loop would answer no more."""
        if self._is_closed:
            raise UnusableError("is not read: the load has ended", "load again")


class Input:
    """The input of one load, with its batch name and the path of its rejects.

    Once it is spooled, it can be read more than once.
    """

    def __init__(
        self,
        config: Config,
        *,
        options: argparse.Namespace,
        stack: ExitStack,
        conversions: Conversions,
    ) -> None:
        if options.documents is not None and options.file is not None:
            raise ConfigError(
                f"--documents takes one folder or pattern, and {options.file} is one more input; "
                "quote the pattern, as in --documents 'docs/*.txt', or leave one input out"
            )
        if not options.file and options.documents is None:
            raise ConfigError(
                "name one input: a FILE of task lines ('-' for stdin), "
                "or --documents DIR|GLOB|URI with --prompt TEXT"
            )
        if options.documents is not None and options.prompt is None:
            raise ConfigError("--documents needs --prompt 'TEXT with {document}'")
        self._options = options
        self.documents = options.documents is not None
        self._table = self._table_rules()
        self._require_fitting_options()
        self._said: set[str] = set()
        self._stack = stack
        self._own = own_files(config)
        self._spooled: str | None = None
        self._position = Position()
        self._files: int | None = None
        self._agents_read = bool(config.roots()) or options.by_uri
        self._conversions = conversions
        self.sizes = TextSizes(conversions.open)
        self._stored: Callable[[str], bytes | None] = lambda _id: None
        self._is_stream = options.file is not None and _is_stream(options.file)
        if options.file == STDIN:
            _wait_at_standard_input()
        self.batch = _require_name(
            self._default_batch() if options.batch is None else options.batch
        )
        self.rejects = rejects_path(
            STDIN if self._is_stream or options.file is None else options.file,
            self.batch,
            Path.cwd(),
        )

    @property
    def noun(self) -> str:
        """The noun for what the input consists of, for a person."""
        if not self.documents:
            return "line" if self._table is None else "row"
        return "object" if is_object_uri(self._options.documents) else "file"

    @property
    def name(self) -> str:
        """The file, pattern or URI as the command line names it."""
        return str(self._options.file or self._options.documents)

    def _table_rules(self) -> TableRules | None:
        """Return how rows become tasks; None if the input is no table. Raises ConfigError."""
        options = self._options
        if options.file is None or not (
            options.map or options.number_rows or _ending(options.file) in _TABLES
        ):
            return None
        if (ending := _ending(options.file)) in _LINES:
            raise ConfigError(
                f"--map and --number-rows are for tables (CSV, Parquet), and {options.file} ends "
                f"with {ending}; leave them out"
            )
        try:
            columns = column_map(",".join(options.map)) if options.map else None
        except ValueError as error:
            raise ConfigError(f"--map: {error}") from None
        return TableRules(columns=columns, common=self._question(), number=options.number_rows)

    def _question(self) -> dict[str, Any]:
        """Return what all documents or rows have in common. Raises ConfigError."""
        options = self._options
        return question_of(options.prompt, options.model, options.type, options.schema)

    def _require_fitting_options(self) -> None:
        """Raise ConfigError for an option that the form of the input gives no meaning."""
        wrong: tuple[str, ...]
        if self.documents:
            wrong, only = TABLES_ONLY, "a table (CSV, Parquet)"
        elif self._table is not None:
            wrong, only = DOCUMENTS_ONLY, "--documents"
        else:
            wrong, only = (*COMMON, *DOCUMENTS_ONLY), "--documents or a table (CSV, Parquet)"
        given = [f"--{name.replace('_', '-')}" for name in wrong if getattr(self._options, name)]
        if given:
            raise ConfigError(
                f"{', '.join(given)} can be given with {only} only"
                + ("" if self.documents or self._table else "; a task line sets these by itself")
            )

    def _note_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            note(shown(text))

    def _default_batch(self) -> str:
        if self._options.documents is not None:
            source = self._options.documents
            return objects_batch(source) if is_object_uri(source) else documents_batch(source)
        return batch_name(self._options.file, datetime.fromtimestamp(SystemClock().utc_s(), UTC))

    def lines(self) -> Iterator[ValidLine | InvalidLine]:
        """Return the lines from the start, at most --limit of them; the load's end closes them."""
        lines = self._open_lines()
        self._stack.callback(_close, lines)
        return islice(lines, self._options.limit)

    def _open_lines(self) -> Generator[ValidLine | InvalidLine, None, None]:
        options = self._options
        if options.documents is None:
            source = self._spooled or options.file
            if self._table is not None:
                return read_table(
                    source,
                    stdin=sys.stdin.buffer,
                    rules=self._table,
                    note=self._note_once,
                    position=self._position,
                )
            return read_lines(source, stdin=sys.stdin.buffer, position=self._position)
        if is_object_uri(options.documents):
            return read_objects(options.documents, self._question())
        reader = DocumentReader(
            question=self._question(),
            by_uri=options.by_uri,
            opened=self._conversions.open if options.convert else None,
            sizes=self.sizes,
            stored=self._stored,
            agents_read=self._agents_read,
        )
        return reader.read(options.documents, leave_out=[self.rejects, *self._own])

    def compare_with(self, find: FindLine) -> None:
        """Let the sources of converted texts be compared with the lines that a ledger has."""
        self._stored = self._conversions.stored_by(find)

    def count(self) -> None:
        """Count the documents, which may take some time: `share` knows them from then on.

        Objects are not counted, because each page of their listing costs a request.
        """
        if self.documents and not is_object_uri(self._options.documents):
            tree = FileTree.of(self._options.documents, leave_out=[self.rejects, *self._own])
            self._files = sum(1 for _ in tree.entries())

    def share(self, tasks: int) -> tuple[float, float | None]:
        """Return how much of the input is done after `tasks` tasks, and how much there is."""
        limit = self._options.limit
        if self.documents:
            files = self._files if limit is None or self._files is None else min(limit, self._files)
            return tasks, files
        if limit is not None:
            return tasks, limit
        return self._position.done, self._position.total

    def spool(self) -> None:
        """Copy a stream, such as a pipe, to a file, so that it can be read twice.

        Raises ConfigError.
        """
        if not self._is_stream:
            return
        try:
            file = self._stack.enter_context(_temporary())
            for part in _stream_parts(self._options.file):
                file.write(part)
            file.flush()
        except OSError as error:
            where = f" in {tempfile.tempdir}" if tempfile.tempdir else ""
            raise ConfigError(
                f"{self._options.file} cannot be copied{where}: {error.strerror}; "
                "name another folder with TMPDIR"
            ) from None
        self._spooled = file.name


def _ending(source: str) -> str:
    """Return the ending of a file's name, without that of an archive, in lower case."""
    name = source.lower()
    for packing in PACKINGS:
        name = name.removesuffix(packing)
    return Path(name).suffix


def _close(lines: Generator[ValidLine | InvalidLine, None, None]) -> None:
    """Close an input that was not read to its end."""
    # A thread that nobody waits for may still read it: then it stays open.
    with suppress(ValueError):
        lines.close()


def _is_stream(source: str) -> bool:
    """Return whether the source is a stream that cannot be read again.

    A folder, or a path that cannot be examined, is no stream: it fails when it is opened.
    """
    if source == STDIN:
        return True
    try:
        mode = Path(source).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _stream_parts(source: str) -> Iterator[bytes]:
    """Yield a stream in parts. Raises ConfigError if it cannot be read."""
    try:
        with nullcontext(sys.stdin.buffer) if source == STDIN else Path(source).open("rb") as file:
            yield from iter(lambda: file.read(_PART_BYTES), b"")
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from None


def _wait_at_standard_input() -> None:
    """Make reads of standard input blocking.

    If the parent process made them non-blocking, a pause would look like the end of the input.
    """
    with suppress(OSError):
        os.set_blocking(sys.stdin.fileno(), True)


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    """Yield a temporary file for a stream. Raises OSError."""
    file = tempfile.NamedTemporaryFile(prefix="docllm-stdin-")  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):  # a full disk was reported when it was written to
            file.close()


def _require_name(name: str) -> str:
    if not is_batch_name(name):
        raise ConfigError(f"batch name {name!r}: {RULE} (--batch)")
    return name
