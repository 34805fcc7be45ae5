"""Writes and reads results as files, `file:///FOLDER/NAME`.

Failures are ObjectErrors. A new file is opened exclusively, below its root, without following
links. It is on the disk, with its name, when the call returns. Each call blocks.

Results may be confidential, so only the agents' user may read them, and whoever may write to the
root: its group, or everybody.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.task.allowed_uris import uri_parts

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FAULTS = {
    errno.EEXIST: ObjectFault.EXISTS,
    errno.ENOENT: ObjectFault.MISSING,
    errno.EACCES: ObjectFault.DENIED,
    errno.EPERM: ObjectFault.DENIED,
    errno.EROFS: ObjectFault.DENIED,
    errno.ENAMETOOLONG: ObjectFault.WRONG_NAME,
}

T = TypeVar("T")
_Write = Callable[[int, str, bytes, int], None]  # into a folder's handle: a name, bytes, a mode


def put_new(uri: str, content: bytes, *, root: str) -> None:
    """Write a file that does not exist yet; make the folders between `root` and it.

    `root` is the URI of an existing folder. Raises ObjectError, with EXISTS if there is such a
    file, whole or not.
    """
    _told(uri, partial(_put, uri, content, root, _create))


def put(uri: str, content: bytes, *, root: str) -> None:
    """Write a file, whole or not at all, as `put_new` does; replace the one that has its name."""
    _told(uri, partial(_put, uri, content, root, _replace))


def get(uri: str, *, limit: int) -> bytes:
    """Return a file of at most `limit` bytes. Raises ObjectError."""
    content = _told(uri, partial(_read, uri, limit))
    if len(content) > limit:
        raise ObjectError(ObjectFault.TOO_LARGE, f"{uri} has more than {limit} bytes")
    return content


def sizes(folder: str) -> dict[str, int]:
    """Return the names of the files in a folder, with their sizes in bytes. Raises ObjectError."""
    return _told(folder, partial(_sizes, folder))


def _told(uri: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        fault = _FAULTS.get(error.errno or 0, ObjectFault.OUTAGE)
        raise ObjectError(fault, f"{uri} cannot be used: {error.strerror}") from None
    except ValueError as error:
        raise ObjectError(ObjectFault.WRONG_NAME, f"{uri} names no file: {error}") from None


def _put(uri: str, content: bytes, root: str, write: _Write) -> None:
    base, parts = _path(root), uri_parts(uri).segments[len(uri_parts(root).segments) - 1 :]
    folder = os.open(os.path.realpath(base), _OPEN_FOLDER)
    try:
        mode = _mode(os.fstat(folder).st_mode)
        for part in parts[:-1]:
            inner = _inner(folder, part, mode)
            os.close(folder)
            folder = inner
        write(folder, parts[-1], content, mode & 0o666)
        os.fsync(folder)
    finally:
        os.close(folder)


def _mode(root: int) -> int:
    """Return the mode of folders below a root; everybody may write to `/tmp`, but not for that."""
    of_group = stat.S_IRWXG if root & stat.S_IWGRP else 0
    of_others = stat.S_IRWXO if root & stat.S_IWOTH and not root & stat.S_ISVTX else 0
    return stat.S_IRWXU | of_group | of_others


def _inner(folder: int, name: str, mode: int) -> int:
    """Return a handle of a folder in a folder; make it if it is missing."""
    try:
        os.mkdir(name, mode, dir_fd=folder)
    except FileExistsError:
        pass
    else:
        os.fsync(folder)
    return os.open(name, _OPEN_FOLDER, dir_fd=folder)


def _create(folder: int, name: str, content: bytes, mode: int) -> None:
    handle = os.open(name, _CREATE, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(handle)
    except BaseException:
        os.unlink(name, dir_fd=folder)  # a half file would keep its name from the next try
        raise
    finally:
        os.close(handle)


def _replace(folder: int, name: str, content: bytes, mode: int) -> None:
    draft = f".docllm-{secrets.token_hex(8)}"
    _create(folder, draft, content, mode)
    try:
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(draft, dir_fd=folder)
        raise


def _read(uri: str, limit: int) -> bytes:
    with os.fdopen(os.open(_path(uri), _READ), "rb") as file:
        return file.read(limit + 1)


def _sizes(folder: str) -> dict[str, int]:
    with os.scandir(_path(folder)) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def _path(uri: str) -> str:
    return "/" + "/".join(uri_parts(uri).segments)
