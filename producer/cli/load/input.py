"""The input of `load`, with its batch and its rejects file.

The input is task lines from a file, a pipe or standard input, or documents.
"""

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO

from docllm.producer.input.documents import documents_batch, read_documents
from docllm.producer.input.excluded_files import own_files
from docllm.producer.input.file_tree import FileTree
from docllm.producer.input.lines import STDIN, InvalidLine, ValidLine, batch_name, read_lines
from docllm.producer.input.object_documents import objects_batch, read_objects
from docllm.producer.input.position import Position
from docllm.producer.input.rejects import rejects_path
from docllm.schemas.errors import ConfigError
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.task.batch_name import RULE, is_batch_name

_PART_BYTES = 1 << 20
DOCUMENTS_ONLY = ("prompt", "model", "type", "schema", "by_uri")


class Input:
    """The input of one load, with its batch name and the path of its rejects.

    Once it is spooled, it can be read more than once.
    """

    def __init__(self, config: Config, *, options: argparse.Namespace, stack: ExitStack) -> None:
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
        misplaced = [
            f"--{name.replace('_', '-')}" for name in DOCUMENTS_ONLY if getattr(options, name)
        ]
        if options.documents is None and misplaced:
            raise ConfigError(
                f"{', '.join(misplaced)} can be given with --documents only; "
                "a file of task lines sets these in each line"
            )
        self._options = options
        self.documents = options.documents is not None
        self._stack = stack
        self._own = own_files(config)
        self._spooled: str | None = None
        self._position = Position()
        self._files: int | None = None
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
            return "line"
        return "object" if is_object_uri(self._options.documents) else "file"

    @property
    def name(self) -> str:
        """The file, pattern or URI as the command line names it."""
        return str(self._options.file or self._options.documents)

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
            return read_lines(source, stdin=sys.stdin.buffer, position=self._position)
        if is_object_uri(options.documents):
            return read_objects(
                options.documents,
                prompt=options.prompt,
                model=options.model,
                task_type=options.type,
                schema=options.schema,
            )
        return read_documents(
            options.documents,
            prompt=options.prompt,
            model=options.model,
            task_type=options.type,
            schema=options.schema,
            by_uri=options.by_uri,
            leave_out=[self.rejects, *self._own],
        )

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
