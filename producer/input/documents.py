"""Turns documents into task lines: `docllm load --documents`.

The bytes are the same at every load, so a second load is recognized. A document that cannot be read
is an `InvalidLine` with its number in sorted order; it stops nothing.
"""

import os
import shlex
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import orjson

from docllm.producer.input.conversion import (
    MAX_SOURCE_BYTES,
    MAX_TEXT_BYTES,
    OpenConversion,
    TextSizes,
)
from docllm.producer.input.document_source import (
    MAX_INLINE_BYTES,
    DocumentFile,
    UnusableError,
    look_into,
)
from docllm.producer.input.file_tree import FileEntry, FileTree, shown_name
from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.sent_text import sent_bytes
from docllm.schemas.documents.kind import Kind
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.parsing import PLACEHOLDER, LineError, parse
from docllm.schemas.task.line.strict_json import read_object, reading, refuse_rounded
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.text.document_text import ReadText, blank_problem

CONVERTED_AT_ONCE = 8  # documents that are begun while the first of them is not done
T = TypeVar("T")


@dataclass(slots=True)
class DocumentLine(ValidLine):
    """A task whose document is a file: its kind, and the bytes of its text as far as known."""

    kind: Kind = Kind.TEXT
    text_bytes: int = 0
    omitted: Sequence[str] = ()

    @property
    def input_bytes(self) -> int:
        """The bytes of what the model reads: prompt, schema, and the document's text."""
        return sent_bytes(self.task) + self.text_bytes


def _in_order(
    begun: Iterator[Callable[[], ValidLine | InvalidLine]], *, most: int
) -> Generator[ValidLine | InvalidLine, None, None]:
    """Yield the lines that were begun, in order, with at most `most` further ones begun."""
    waiting: deque[Callable[[], ValidLine | InvalidLine]] = deque()
    for line in begun:
        waiting.append(line)
        if len(waiting) > most:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def documents_batch(source: str) -> str:
    """Return the default batch for documents: the folder's name."""
    return FileTree.of(source).name


def question_of(
    prompt: str | None, model: str | None, task_type: str | None, schema: Path | None
) -> dict[str, Any]:
    """Return the fields that all lines have in common, checked like those of a line."""
    question: dict[str, Any] = {} if prompt is None else {"prompt": prompt}
    if model is not None:
        question["model"] = model
    if task_type is not None:
        question["type"] = task_type
    try:
        if schema is not None:
            question["schema"] = read_schema(schema)
        parse(task_line("a", {"prompt": PLACEHOLDER} | question, {"text": "a"}))
    except LineError as error:
        if error.field == "prompt" and prompt and os.path.isfile(prompt):  # noqa: PTH113 - a text
            raise ConfigError(
                f"--prompt {prompt!r} is the name of a file, not a prompt with {{document}}; "
                f'to take the text of that file: --prompt "$(cat {shlex.quote(prompt)})"'
            ) from None
        raise ConfigError(
            f"--{error.field or 'schema'} {error.error}; "
            f"{error.fix.replace(', or leave out input', '')}"
        ) from None
    return question


def read_schema(path: Path) -> dict[str, Any]:
    """Return a JSON Schema from its file. Raises ConfigError, and LineError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--schema {path} cannot be read: {error.strerror}") from None
    with reading(memory=True):
        schema = read_object(raw)
        refuse_rounded({"schema": schema}, "schema", b'{"schema":%s}' % raw)
    return schema


def task_line(key: str, question: dict[str, Any], source: dict[str, Any]) -> bytes:
    """Return the line of a document's task."""
    return orjson.dumps({"id": key, "prompt": question["prompt"], "input": source} | question)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReader:
    """Makes task lines of documents; `question` has the fields that all of them have in common.

    `opened` opens the converters when a document needs them; without it, only agents convert, and
    `sizes` estimates the text. `stored` returns the line that the batch has under an id. Unless
    `agents_read`, agents have no folder from which they could read a file.
    """

    question: dict[str, Any]
    by_uri: bool = False
    opened: OpenConversion | None = None
    sizes: TextSizes | None = None
    stored: Callable[[str], bytes | None] = lambda _id: None
    agents_read: bool = True

    def read(
        self, source: str, *, leave_out: Collection[Path] = ()
    ) -> Generator[ValidLine | InvalidLine, None, None]:
        """Return the tasks of a folder's or glob's documents, sorted by id.

        One file at a time is in memory. A text in UTF-8 of up to 256 KiB goes into the task. Any
        other document, or every one with `by_uri`, stays where it is, and the task names its URI,
        size and SHA-256; agents make the text of it. With `opened`, its text goes into the task
        too, and some files at once are in memory.

        Raises ConfigError at once when there is no document.
        """
        entries = FileTree.of(source, leave_out=leave_out).entries()
        first_entry = next(entries, None)
        if first_entry is None:
            raise ConfigError(
                f"no document matches {source}; write a folder or a quoted pattern, "
                "for example 'docs/**/*.txt'"
            )
        numbered = enumerate(chain([first_entry], entries), 1)
        return _in_order(
            (self._begin(number, entry) for number, entry in numbered),
            most=0 if self.opened is None else CONVERTED_AT_ONCE,
        )

    def _begin(self, number: int, entry: FileEntry) -> Callable[[], ValidLine | InvalidLine]:
        """Read a document and begin its conversion, if it needs one; return its line's call.

        A line is a call, because a conversion may take a while.
        """
        make = self._guarded(number, entry, lambda: self._make(number, entry))
        return make if callable(make) else lambda: make

    def _guarded(self, number: int, entry: FileEntry, make: Callable[[], T]) -> "T | InvalidLine":
        try:
            with reading(memory=True):
                try:
                    return make()
                except OSError as error:
                    fix = "allow the file to be read, then load again"
                    return _bad(number, entry, f"cannot be read: {error.strerror}", fix)
                except UnusableError as error:
                    return _bad(number, entry, str(error), error.fix)
        except LineError as error:
            return _bad(number, entry, error.error, error.fix)

    def _make(
        self, number: int, entry: FileEntry
    ) -> "ValidLine | InvalidLine | Callable[[], ValidLine | InvalidLine]":
        if entry.problem:
            return _bad(number, entry, entry.problem, entry.fix)
        file = look_into(entry.path)
        limit = -1 if self.by_uri else MAX_INLINE_BYTES
        if (source := file.as_text(limit)) is not None:
            return _line(number, entry, self._value(entry, source), file.kind)
        if self.opened is None or len(file.raw) > MAX_SOURCE_BYTES:
            return self._named(number, entry, file)
        stored = self.stored(entry.id)
        if stored is not None and _is_of_source(stored, self._value(entry, {}), file.sha256):
            return _line(number, entry, stored, file.kind)
        conversion = self.opened()
        text = conversion.begin(file.raw)
        finish = partial(self._converted, number, entry, file, text, conversion.version)
        return partial(self._guarded, number, entry, finish)

    def _converted(
        self, number: int, entry: FileEntry, file: DocumentFile, text: "Future[ReadText]", by: str
    ) -> ValidLine | InvalidLine:
        """Return the line with a document's text, or the one that names a file with a long text."""
        read = text.result()
        if problem := blank_problem(read.text):
            raise UnusableError(problem, "remove the file, or leave it out with a pattern")
        made_of: dict[str, Any] = {"sha256": file.sha256, "converter": by}
        if read.omitted:
            made_of["omitted"] = list(read.omitted)
        value = self._value(entry, {"text": read.text, "source": made_of})
        is_long = len(read.text.encode("utf-8", "replace")) > MAX_TEXT_BYTES
        if is_long or len(value) > MAX_TASK_BYTES:
            return self._named(number, entry, file)
        return _line(number, entry, value, file.kind, omitted=read.omitted)

    def _named(self, number: int, entry: FileEntry, file: DocumentFile) -> ValidLine | InvalidLine:
        """Return the line that names the file, for an agent to read it."""
        if not self.agents_read:
            limits = f"{MAX_SOURCE_BYTES >> 20} MiB, with a text of {MAX_TEXT_BYTES >> 20}"
            raise UnusableError(
                f"is {file.kind.value} that an agent must read, and agents may read no folder",
                f"load it with --convert (up to {limits}); or set DOCLLM_DOCUMENT_ROOTS to a "
                "folder that all agents have, or add --by-uri if they have set it",
            )
        raw, sizes = file.raw, self.sizes
        text_bytes = len(raw) if sizes is None else sizes.of(file.kind, raw)
        value = self._value(entry, file.by_uri())
        return _line(number, entry, value, file.kind, text_bytes=text_bytes)

    def _value(self, entry: FileEntry, source: dict[str, Any]) -> bytes:
        return task_line(entry.id, self.question, source)


def _line(
    number: int,
    entry: FileEntry,
    value: bytes,
    kind: Kind,
    *,
    text_bytes: int = 0,
    omitted: Sequence[str] = (),
) -> ValidLine | InvalidLine:
    line = with_document(read_line(number, value), shown_name(entry.id))
    if isinstance(line, InvalidLine):
        return line
    return DocumentLine(
        line.line,
        line.key,
        line.value,
        line.task,
        line.document,
        kind=kind,
        text_bytes=text_bytes,
        omitted=omitted,
    )


def _is_of_source(stored: bytes, own: bytes, sha256: str) -> bool:
    """Return whether a stored line asks the same of the same document, whatever its text.

    `own` is the line to load, with an empty input.
    """
    try:
        line = orjson.loads(stored)
        source = line["input"]
        digest = source["source"]["sha256"] if "source" in source else source.get("sha256")
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return bool(digest == sha256 and {**line, "input": {}} == orjson.loads(own))


def _bad(number: int, entry: FileEntry, problem: str, fix: str) -> InvalidLine:
    return InvalidLine(number, "", problem, fix, None, shown_name(entry.id))


def with_document(line: ValidLine | InvalidLine, name: str) -> ValidLine | InvalidLine:
    """Return the line with the name of its document, whose errors nobody repairs in the line."""
    if isinstance(line, ValidLine):
        return replace(line, document=name)
    fix = line.fix
    if line.field == "id":
        fix = "rename the file or its folder: the path is the task's id, of at most 191 bytes"
    return replace(line, text=None, document=name, fix=fix)
