"""Destinations of output: a file that appears whole or not at all, or standard output.

A reader of standard output may leave at any time.
"""

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
    """Yield a file that gets its name when the block ends without an error.

    `mode` is the file's permissions, before the user's umask. After an error the old file of that
    name stays as it was. A link is kept and its target replaced. A device or a pipe is written to
    directly, and a reader that leaves ends the block without an error. Raises OSError.
    """
    # The pipe behind /dev/stdout has no name that it could be opened by.
    if path.exists() and not path.is_file():
        with suppress(BrokenPipeError), path.open("wb") as device:
            yield device
        return
    with suppress(FileNotFoundError):
        path.stat()  # a loop of links has no target
    target = path.resolve()
    _remove_abandoned_drafts(target)
    draft = target.with_name(f"{_prefix(target)}{os.getpid()}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb"
        ) as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)


def _prefix(target: Path) -> str:
    """Return the beginning of a draft's name; a name has at most 255 bytes, not characters."""
    return f".{os.fsencode(target.name)[:200].decode(errors='ignore')}."


def _remove_abandoned_drafts(target: Path) -> None:
    """Remove the drafts of this file whose writers were killed."""
    draft_name = re.compile(
        re.escape(_prefix(target)) + r"([0-9]+)\.[0-9a-f]{8}" + re.escape(_SUFFIX)
    )
    for draft in _files_beside(target):
        if match := draft_name.fullmatch(draft.name):
            with suppress(OSError):
                _remove_if_abandoned(draft, int(match[1]))


def _files_beside(target: Path) -> list[Path]:
    """Return the files in the target's folder.

    Returns an empty list if the folder cannot be listed, which must not prevent writing.
    """
    try:
        return list(target.parent.iterdir())
    except OSError:
        return []


def _remove_if_abandoned(draft: Path, pid: int) -> None:
    """Remove a draft whose writer no longer runs.

    A writer in another container has a process id that means nothing here, but its draft is locked.
    """
    with suppress(OverflowError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            with draft.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink(missing_ok=True)


def _lock(file: BinaryIO) -> None:
    """Show that the draft has a writer, where the file system supports locks."""
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield standard output; a reader that left (`head`) ends the block without an error."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        give_up_standard_output()


def give_up_standard_output() -> None:
    """Discard all further output.

    The interpreter flushes stdout once more at its end and would complain then.
    """
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)


def sync_folder(folder: Path) -> None:
    """Sync a folder: a new name survives a power cut only once its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
