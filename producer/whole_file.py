"""Where output goes: a file that appears whole or not at all, or standard output, whose reader may leave at any time."""

import fcntl
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".part"


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file that gets its name when the block ends without an error; otherwise what had that name stays as it was.

    `mode`: who may read it, less what the user's umask takes away. A link is kept and its target replaced; a device or a pipe is
    written to as it is, and a reader that leaves ends the block without an error. Raises OSError.
    """
    if path.exists() and not path.is_file():  # the pipe behind /dev/stdout has no name that it could be opened by
        with suppress(BrokenPipeError), path.open("wb") as device:
            yield device
        return
    with suppress(FileNotFoundError):
        path.stat()  # a loop of links has no target
    target = path.resolve()
    _remove_left_drafts(target)
    draft = target.with_name(f"{_prefix(target)}{os.getpid()}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _prefix(target: Path) -> str:
    """A name has at most 255 bytes, however many letters these are."""
    return f".{os.fsencode(target.name)[:200].decode(errors='ignore')}."


def _remove_left_drafts(target: Path) -> None:
    """Remove the drafts of this file whose writers were killed."""
    named = re.compile(re.escape(_prefix(target)) + r"([0-9]+)\.[0-9a-f]{8}" + re.escape(_SUFFIX))
    for draft in _files_beside(target):
        if found := named.fullmatch(draft.name):
            with suppress(OSError):
                _remove_left(draft, int(found[1]))


def _files_beside(target: Path) -> list[Path]:
    """Return them; none where the folder cannot be listed, which need not keep anybody from writing."""
    try:
        return list(target.parent.iterdir())
    except OSError:
        return []


def _remove_left(draft: Path, pid: int) -> None:
    """A writer elsewhere, as in another container, has a number that means nothing here; but its draft is locked."""
    with suppress(OverflowError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with draft.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink(missing_ok=True)


def _lock(file: BinaryIO) -> None:
    """Show that the draft has a writer, where the file system can."""
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
