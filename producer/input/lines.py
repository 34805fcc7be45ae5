"""Reads the input of `docllm load` in bounded memory, and yields good and bad lines.

The input is a file or standard input, packed or not, of JSON lines or of one JSON array. No content
of the input raises an error: a line that is no task becomes an `InvalidLine` with its line number,
and reading continues behind it.
"""

import os
import shlex
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, Any, BinaryIO

import orjson

from docllm.producer.input.foreign_forms import ForeignForm, foreign_form, form_of_text
from docllm.producer.input.json_array import ArrayItems, begins_array
from docllm.producer.input.other_files import NoLinesError
from docllm.producer.input.packed import BUFFER_BYTES, DAMAGED, as_text, beginning_of
from docllm.producer.input.sent_text import sent_bytes
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.overrides import FIELDS
from docllm.schemas.task.line.parsing import BOM, LineError, TaskLine, parse, too_large
from docllm.schemas.task.line.strict_json import NOT_JSON, NOT_UTF8, reading
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.text.untrusted import contained

STDIN = "-"
REJECTS_SUFFIX = ".rejects.jsonl"

_MAX_BLANK_BYTES = 1 << 20  # if most lines are blank
_MAX_SKIPPED_BYTES = 64 << 20  # of one line
_FORM_CHARS = 4096  # of a line that is too large
PACKINGS = (".gz", ".bz2", ".xz", ".zst", ".zip")
_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_REPAIR = "repair the file and load it again"
_REJECT_FIELDS = {"line", "field", "error", "fix", "text"}
_REPLACEMENT = "\ufffd"  # replaces the bad bytes in the text of a line that is not UTF-8


@dataclass(slots=True)
class ValidLine:
    """A task to load.

    `line` counts from 1. `value` is the record's value: the line's bytes without the line end.
    `document` is the name of the file that the task was made from, empty for a line. `noun` names
    what is counted: a line, an item of an array, or a row of a table.
    """

    line: int
    key: str
    value: bytes
    task: TaskLine
    document: str = ""
    noun: str = "line"

    def refused(self, field: str, error: str, fix: str) -> "InvalidLine":
        """Return the bad line for a task that cannot be loaded; nobody repairs a document's."""
        text = None if self.document else self.value.decode()
        return InvalidLine(self.line, field, error, fix, text, self.document, noun=self.noun)

    @property
    def input_bytes(self) -> int:
        """The bytes of what the model reads, with the document that the line names, if known."""
        return sent_bytes(self.task) + (self.task.size or 0)


@dataclass(frozen=True, slots=True)
class InvalidLine:
    """A line that is no task.

    `text` is the line as read, None if it was too large to keep or could not be read. `document` is
    the name of the file that is no task, empty for a line. `form` is what the line is, if it is not
    written as a task line. `clashes`: it is a task, but its batch has another of its id.
    """

    line: int
    field: str
    error: str
    fix: str
    text: str | None
    document: str = ""
    form: ForeignForm | None = None
    noun: str = "line"
    clashes: bool = False

    @property
    def problem(self) -> str:
        """The error with its field."""
        return f"{self.field} {self.error}" if self.field else self.error

    def __str__(self) -> str:
        where = self.document or f"{self.noun} {self.line}"
        return f"{where}: {self.problem}; {self.fix}"


class Position:
    """The read position in the input file, in bytes on disk (compressed bytes for a gzip file).

    Another thread may read the file.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._done = 0
        self.total: int | None = None

    def follow(self, file: IO[bytes]) -> None:
        """Follow a file that was opened. A stream has no total."""
        self._file, self._done, self.total = file, 0, None
        with suppress(OSError, ValueError):  # no file of the system, as in a test
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                self.total = status.st_size

    @property
    def done(self) -> int:
        """How many bytes were read; after the end, all of them."""
        if self._file is None or self.total is None:
            return 0
        try:
            self._done = self._file.tell()
        except (OSError, ValueError):  # it is closed
            self._done = self.total
        return self._done


def read_lines(
    source: str, *, stdin: BinaryIO, position: Position | None = None
) -> Generator[ValidLine | InvalidLine, None, None]:
    """Return every line of the file `source`, or of `stdin` if `source` is `-`.

    `position` follows how far it is read.

    A packed input is unpacked, whatever its name. Empty lines are skipped but counted. A line of a
    rejects file stands for its repaired `text`. Raises ConfigError at once if the source cannot be
    opened; the first read raises NoLinesError if it is a file of another kind.
    """
    file: IO[bytes] = stdin if source == STDIN else open_input(source)
    if position is not None:
        position.follow(file)
    opened = nullcontext(file) if source == STDIN else file
    return _lines(opened)


def _lines(
    opened: AbstractContextManager[IO[bytes]],
) -> Generator[ValidLine | InvalidLine, None, None]:
    last = 0
    with opened as file:
        try:
            with as_text(file) as stream:
                if begins_array(beginning_of(stream)):
                    for last, (item, size) in enumerate(_items(stream), 1):
                        yield called("item", _read_item(last, item, size))
                    return
                for last, line in _split(stream):
                    yield line if isinstance(line, InvalidLine) else read_line(last, line)
        except (*DAMAGED, zlib.error) as failure:
            if not last:
                raise unreadable(failure) from None
            yield damaged(last + 1, failure)


def _items(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    return iter(ArrayItems(stream, most=MAX_TASK_BYTES + 1))


def _read_item(number: int, item: bytes, size: int) -> ValidLine | InvalidLine:
    if len(item) > MAX_TASK_BYTES:
        return _bad(number, too_large(size, item), None)
    return read_line(number, item)


def called(noun: str, line: ValidLine | InvalidLine) -> ValidLine | InvalidLine:
    """Return the line with the noun for what it is in its input."""
    if isinstance(line, InvalidLine):
        return replace(line, noun=noun)
    line.noun = noun
    return line


def read_line(number: int, value: bytes) -> ValidLine | InvalidLine:
    """Read the task of one line, which may be a line of a rejects file."""
    try:
        with reading(memory=True):
            return _read(number, value)
    except LineError as error:
        return _named(_bad(number, error, value.decode("utf-8", "replace")))


def _named(bad: InvalidLine) -> InvalidLine:
    """Return a bad line with its form, and with the error that names it if that says more."""
    if bad.text is None or bad.error.startswith(NOT_UTF8):
        return bad
    form = foreign_form(bad.text, bad.field)
    if form is None or (bad.error.startswith(NOT_JSON) and not form.alone):
        return replace(bad, form=form)
    return InvalidLine(bad.line, form.field, form.error, form.fix, bad.text, form=form)


def _read(number: int, value: bytes) -> ValidLine | InvalidLine:
    try:
        task = parse(value)
    except LineError:
        if value.startswith(BOM):  # of a file that was joined to another
            return _read(number, value.removeprefix(BOM))
        reject = _rejected(value)
        if reject is None:
            raise
        return _repaired(number, reject)
    return ValidLine(number, task.key, value, task)


def clashing(
    line: ValidLine, batch: str, stored: bytes | None = None, *, over_http: bool = False
) -> InvalidLine:
    """Return the error for a line whose id is already in the batch with other content.

    `stored` is the line of that id in the batch, as far as it is known. It tells a changed prompt
    from a changed document. `over_http`: who sent the line has no commands.
    """
    names, replay = _differing(line.value, stored), f"docllm replay --batch {shlex.quote(batch)}"
    with_other = "with other content"
    fix = "load it into another batch with --batch"
    if names and names <= {"type", *FIELDS}:
        with_other = f"with another {' and another '.join(sorted(names))}"
        if "type" not in names:
            options = " ".join(f"--{name} ..." for name in sorted(names))
            fix += f", or let the dead tasks of this batch run so: {replay} {options}"
    elif line.document:
        fix = "load the documents as they are now into another batch with --batch"
        if names == {"input"} and line.task.uri is not None and b'"uri"' in (stored or b""):
            fix += f", or let the dead tasks run with them: {replay} --refresh-documents"
    else:
        with_other += "; white space and the order of fields count as content"
        fix = f"give the {line.noun} another id, or {fix}"
    if over_http:
        fix = "give the line another id, or post it to another batch"
    problem = f"is in batch {batch!r} already {with_other}"
    field, name = ("", "") if line.document else (_name_of_id(line), f"{line.key!r} ")
    return replace(line.refused(field, f"{name}{problem}", fix), clashes=True)


def _differing(value: bytes, stored: bytes | None) -> set[str]:
    """Return the fields in which two lines differ; none if that is not known."""
    try:
        with contained():
            one, other = orjson.loads(value), orjson.loads(stored or b"{}")
    except Exception:  # noqa: BLE001 - nothing more is known of such a line
        return set()
    if not isinstance(other, dict) or not other:
        return set()
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _name_of_id(line: ValidLine) -> str:
    if line.task.format == "docllm":
        return "id"
    return "custom_id" if "custom_id" in orjson.loads(line.value) else "key"


def batch_name(source: str, now: datetime) -> str:
    """Return the default batch name of a source.

    A rejects file belongs to the batch of the file that it was made from.
    """
    if source == STDIN:
        return f"stdin-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    name = os.path.basename(source.rstrip("/"))  # noqa: PTH119 - a source is a text, not always a path
    while name.endswith(REJECTS_SUFFIX):
        name = name.removesuffix(REJECTS_SUFFIX)
    for packing in PACKINGS:
        name = name.removesuffix(packing)
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    return name.removesuffix(ending) or name


def open_input(source: str) -> IO[bytes]:
    """Open a file to read it. Raises ConfigError."""
    try:
        return open(source, "rb", buffering=BUFFER_BYTES)  # noqa: PTH123 - a text, not a Path
    except IsADirectoryError:
        raise ConfigError(
            f"{source} cannot be read: it is a folder; for its documents: docllm load "
            f"--documents {shlex.quote(source)} --prompt 'Summarize: {{document}}'"
        ) from None
    except OSError as error:
        fetch = f"; fetch it: curl -fsSL {shlex.quote(source)} | docllm load -"
        more = fetch if "://" in source else ""
        raise ConfigError(f"{source} cannot be read: {error.strerror}{more}") from None


def _split(stream: IO[bytes]) -> Iterator[tuple[int, bytes | InvalidLine]]:
    """Yield the number and bytes of each line that is not blank, without its end.

    A line that is too large to read is yielded as its error. Raises EOFError if the rest is not
    worth reading, as in an archive of some kilobytes that unpacks to many gigabytes.
    """
    number = blank_lines = blank_bytes = 0
    longest = MAX_TASK_BYTES + len(BOM) + len(b"\r\n")
    while line := stream.readline(longest):
        number += 1
        if number == 1:
            line = line.removeprefix(BOM)
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        elif len(line) > MAX_TASK_BYTES:
            yield number, _too_large(number, line, stream)
            continue
        if line and not line.isspace():
            yield number, line
            continue
        blank_lines += 1
        blank_bytes += len(line) + 1
        if blank_bytes > _MAX_BLANK_BYTES and 2 * blank_lines > number:
            raise EOFError(f"it has more than {_MAX_BLANK_BYTES >> 20} MiB of blank lines")


def _too_large(number: int, beginning: bytes, stream: IO[bytes]) -> InvalidLine:
    """Return the error of a line that is too large, which is read to its end."""
    form = form_of_text(beginning[:_FORM_CHARS].decode("utf-8", "replace"))
    if form is not None and form.alone:
        return InvalidLine(number, form.field, form.error, form.fix, None, form=form)
    return _bad(number, too_large(len(beginning) + _skip(stream), beginning), None)


def _skip(stream: IO[bytes]) -> int:
    """Read to the end of the line; return how many bytes that were."""
    skipped = 0
    while part := stream.readline(BUFFER_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            return skipped - 1
        if skipped > _MAX_SKIPPED_BYTES:
            raise EOFError(f"it has a line of more than {_MAX_SKIPPED_BYTES >> 20} MiB")
    return skipped


def _bad(number: int, error: LineError, text: str | None) -> InvalidLine:
    return InvalidLine(number, error.field, error.error, error.fix, text)


def damaged(number: int, failure: Exception) -> InvalidLine:
    """Return the line at which a file cannot be read any further."""
    error = f"cannot be read, and neither can the rest: {_reason(failure)}"
    return InvalidLine(number, "", error, f"{_REPAIR}; what is loaded already is recognized", None)


def unreadable(failure: Exception) -> NoLinesError:
    """Return the error for a file of which nothing can be read."""
    return NoLinesError(f"cannot be read: {_reason(failure)}", fix=_REPAIR)


def _reason(failure: Exception) -> str:
    if isinstance(failure, UnicodeDecodeError):
        return f"it is not {failure.encoding}: {failure.reason}"
    return failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)


def is_reject(value: bytes) -> bool:
    """Return whether a line comes from a rejects file."""
    try:
        with reading(memory=True):
            return _rejected(value) is not None
    except LineError:
        return False


def _rejected(value: bytes) -> dict[str, Any] | None:
    """Return the object of a rejects file's line, None for any other line."""
    try:
        line = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return line if type(line) is dict and line.keys() == _REJECT_FIELDS else None


def _repaired(number: int, reject: dict[str, Any]) -> ValidLine | InvalidLine:
    text, old_error = (
        value if isinstance(value, str) else "" for value in (reject["text"], reject["error"])
    )
    if old_error.startswith(NOT_UTF8) and _REPLACEMENT in text:
        return InvalidLine(
            number,
            "",
            old_error,
            "in text, write the right letters for U+FFFD, "
            "which stands for bytes that are no letters",
            text,
        )
    value = text.removeprefix("\ufeff").rstrip("\r\n").encode()
    if not value:
        fix = "load the file that it came from, or write the whole task line into text"
        return InvalidLine(
            number,
            "text",
            "is missing: the line was too large to keep or could not be read",
            fix,
            None,
        )
    try:
        task = parse(value)
    except LineError as error:
        return _bad(number, error, text)
    return ValidLine(number, task.key, value, task)
