"""Turns documents into task lines: `docllm load --documents`.

The bytes are the same at every load, so a second load is recognized. A document that cannot be read
is an `InvalidLine` with its number in sorted order; it stops nothing.
"""

import os
import shlex
from collections.abc import Collection, Generator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from docllm.producer.input.document_source import MAX_INLINE_BYTES, UnusableError, source_of
from docllm.producer.input.file_tree import FileEntry, FileTree, shown_name
from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.parsing import PLACEHOLDER, LineError, parse
from docllm.schemas.task.line.strict_json import read_object, reading, refuse_rounded


def read_documents(
    source: str,
    *,
    prompt: str,
    model: str | None = None,
    task_type: str | None = None,
    schema: Path | None = None,
    by_uri: bool = False,
    leave_out: Collection[Path] = (),
) -> Generator[ValidLine | InvalidLine, None, None]:
    """Return the tasks of a folder's or glob's documents, sorted by id.

    One file at a time is in memory. A text in UTF-8 of up to 256 KiB goes into the task. Any other
    document, or every one with `by_uri`, stays where it is, and the task names its URI, size and
    SHA-256; agents make the text of it.

    Raises ConfigError at once for a prompt without {document}, for an invalid schema, and when
    there is no document.
    """
    question = question_of(prompt, model, task_type, schema)
    tree = FileTree.of(source, leave_out=leave_out)
    entries = tree.entries()
    first_entry = next(entries, None)
    if first_entry is None:
        raise ConfigError(
            f"no document matches {source}; write a folder or a quoted pattern, "
            "for example 'docs/**/*.txt'"
        )
    limit = -1 if by_uri else MAX_INLINE_BYTES
    return (
        _read(number, entry, question, limit)
        for number, entry in enumerate(chain([first_entry], entries), 1)
    )


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
            raw = schema.read_bytes()
            with reading(memory=True):
                question["schema"] = read_object(raw)
                refuse_rounded(question, "schema", b'{"schema":%s}' % raw)
        parse(task_line("a", {"prompt": PLACEHOLDER} | question, {"text": "a"}))
    except OSError as error:
        raise ConfigError(f"--schema {schema} cannot be read: {error.strerror}") from None
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


def task_line(key: str, question: dict[str, Any], source: dict[str, Any]) -> bytes:
    """Return the line of a document's task."""
    return orjson.dumps({"id": key, "prompt": question["prompt"], "input": source} | question)


def _read(
    number: int, entry: FileEntry, question: dict[str, Any], limit: int
) -> ValidLine | InvalidLine:
    try:
        with reading(memory=True):
            return _task(number, entry, question, limit)
    except LineError as error:
        return _bad(number, entry, error.error, error.fix)


def _task(
    number: int, entry: FileEntry, question: dict[str, Any], limit: int
) -> ValidLine | InvalidLine:
    if entry.problem:
        return _bad(number, entry, entry.problem, entry.fix)
    try:
        line = read_line(number, task_line(entry.id, question, source_of(entry.path, limit)))
        return with_document(line, shown_name(entry.id))
    except OSError as error:
        return _bad(
            number,
            entry,
            f"cannot be read: {error.strerror}",
            "allow the file to be read, then load again",
        )
    except UnusableError as error:
        return _bad(number, entry, str(error), error.fix)


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
