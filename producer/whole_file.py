"""Where output goes: a file that appears whole or not at all, or standard output, whose reader may leave at any time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that gets its name when the block ends without an error; otherwise what had that name stays as it was.

    A link is kept and its target replaced; a device or a pipe is written to as it is. Raises OSError.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as device:
            yield device
        return
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield standard output; a reader that left, as `head` does, ends the block without an error."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        give_up_standard_output()


def give_up_standard_output() -> None:
    """Let what is still to be written go nowhere: the interpreter flushes once more at its end and would complain then."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _sync_folder(folder: Path) -> None:
    """The name itself survives a power cut only when its folder was synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
