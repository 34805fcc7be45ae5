"""Writes `FILE.rejects.jsonl`: the lines that a load refused, for repair and another load.

The file has one object a line. Each load writes it anew, as a whole. The module never touches a
file of that name that docllm did not write. Only the owner may read the file, because it holds
parts of the input.
"""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import orjson

from docllm.producer.input.lines import REJECTS_SUFFIX, STDIN, InvalidLine, is_reject
from docllm.producer.limits import MAX_REJECTS
from docllm.producer.text.output_file import whole_file
from docllm.producer.text.private_files import FILE_MODE
from docllm.schemas.errors import ConfigError, InputError
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.text.wording import number_of

MAX_REJECTS_BYTES = 1 << 30  # a packed input of some megabytes could otherwise fill the disk
_MAX_NAME = 240  # bytes; a file system takes 255, and the draft has a slightly longer name


def rejects_path(source: str, batch: str, cwd: Path) -> Path:
    """Return the path of a load's rejects file.

    It lies beside the input file. For standard input and documents (`-`), and for a file in a
    folder that cannot be written, it lies in `cwd`. It is named after the batch if the source has
    no name, or a name too long to get a suffix.
    """
    path = cwd / f"{source}{REJECTS_SUFFIX}"
    if source == STDIN or len(os.fsencode(path.name)) > _MAX_NAME:
        return cwd / f"{batch.replace('/', '_')}{REJECTS_SUFFIX}"
    return path if os.access(path.parent, os.W_OK) else cwd / path.name


class TooManyRejectsError(InputError):
    """A load refused more lines than the rejects file may hold."""


class Rejects:
    """The rejects file of one load, as a context manager.

    If the context ends without an error, the file is complete, or removed if no line was refused.

    `noun` is what is refused: a line, or a file. `max_lines` is how many of them the file takes, 0
    for any number and size. `count` is the number of refused ones. `repairable` is how many of them
    the file holds as text, so that they can be repaired there, and `clashing` how many are tasks of
    which the batch has others. With `dry` nothing is written.
    """

    def __init__(
        self, path: Path, *, max_lines: int = MAX_REJECTS, noun: str = "line", dry: bool = False
    ) -> None:
        self.path = path
        self.dry = dry
        self._noun = noun
        self.count = 0
        self.repairable = 0
        self.clashing = 0
        self._max_lines = max_lines
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Enter the context. Raises ConfigError if a file of that name is not a rejects file."""
        if not self.dry and _is_there(self.path) and not _is_ours(self.path):
            raise ConfigError(
                f"{self.path} exists and is not a rejects file; "
                "move it, because rejected lines are written there"
            )
        return self

    def add(self, bad: InvalidLine) -> None:
        """Write one refused line; leave out its text if the line cannot be loaded from this file.

        Raises TooManyRejectsError if the file is full, and ConfigError if the disk is full.
        """
        line = _line(bad)
        if len(line) > MAX_TASK_BYTES:
            bad = replace(bad, text=None)
            line = _line(bad)
        self._require_space(len(line))
        try:
            if not self.dry:
                self._write(line)
        except OSError as failure:
            raise self._write_error(failure) from None
        self.count += 1
        self.repairable += bad.text is not None
        self.clashing += bad.clashes
        self._bytes += len(line)

    @property
    def place(self) -> str:
        """Where the refused lines are, in words that follow their number."""
        return f", which a load writes to {self.path}" if self.dry else f" in {self.path}"

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._file = self._stack.enter_context(whole_file(self.path, FILE_MODE))
        self._file.write(line)

    def _require_space(self, more_bytes: int) -> None:
        if not self._max_lines or (
            self.count < self._max_lines and self._bytes + more_bytes <= MAX_REJECTS_BYTES
        ):
            return
        reached = (
            f"the most that --max-rejects allows ({self._max_lines:,})"
            if self.count >= self._max_lines
            else f"{MAX_REJECTS_BYTES >> 20:,} MiB of them"
        )
        fix = (
            "repair what they have in common and load the input again, "
            "or allow more with --max-rejects N (0: any number)"
        )
        noun = f"bad {self._noun}"
        raise TooManyRejectsError(f"stopped after {number_of(self.count, noun)}, {reached}; {fix}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
            # A read-only disk refuses to remove even a missing file.
            if error is None and not self.count and not self.dry and _is_there(self.path):
                self.path.unlink(missing_ok=True)
        except OSError as failure:
            if error is None:
                raise self._write_error(failure) from None

    def _write_error(self, failure: OSError) -> ConfigError:
        return ConfigError(
            f"{self.path} cannot be written: {failure.strerror}; "
            f"bad {self._noun}s are kept there; make room, or allow docllm to write it"
        )


def _line(bad: InvalidLine) -> bytes:
    error = f"{bad.document}: {bad.error}" if bad.document else bad.error
    reject = {
        "line": bad.line,
        "field": bad.field,
        "error": error,
        "fix": bad.fix,
        "text": bad.text,
    }
    return orjson.dumps(reject, option=orjson.OPT_APPEND_NEWLINE)


def _is_there(path: Path) -> bool:
    """Return whether the file exists, as far as can be seen."""
    try:
        return path.exists()
    except OSError:
        return False


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first_line = file.readline()
    except OSError:
        return False
    return not first_line or is_reject(first_line)
