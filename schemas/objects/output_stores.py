"""Keeps results by the scheme of their URI, as objects or as files. Failures are ObjectErrors.

A new file is opened exclusively, below its root, without following links. It is on the disk, with
its name, when the call returns. Results may be confidential, so only the agents' user may read
them, and whoever may write to the root: its group, or everybody.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.allowed_uris import allowed, uri_parts

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

_Write = Callable[[int, str, bytes, int], None]  # into a folder's handle: a name, bytes, a mode


class OutputStores:
    """Folders of this machine, by `file://`, and object stores, by the schemes of `ObjectStores`.

    A file is written below one of the folders `allow` only.
    """

    def __init__(
        self, *, executor: Executor, objects: ObjectStores, allow: Sequence[str] = ()
    ) -> None:
        self._executor = executor
        self._objects = objects
        self._allow = tuple(allow)

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write what does not exist yet. Raises ObjectError, with EXISTS if it does."""
        if is_object_uri(uri):
            await self._objects.put_new(uri, content)
            return
        await self._executor(partial(put_new_file, uri, content, root=self._root(uri)))

    async def put(self, uri: str, content: bytes) -> None:
        """Write an object below an allowed prefix, whatever has its name. Raises ObjectError."""
        root = self._root(uri)
        if is_object_uri(uri):
            await self._objects.put(uri, content)
            return
        await self._executor(partial(put_file, uri, content, root=root))

    def _root(self, uri: str) -> str:
        roots = (prefix for prefix in self._allow if allowed(uri, [prefix]))
        if (root := next(roots, None)) is None:
            raise ObjectError(ObjectFault.WRONG_NAME, f"{uri} is not below an allowed folder")
        return root

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object of at most `limit` bytes. Raises ObjectError."""
        if is_object_uri(uri):
            return (await self._objects.get(uri, limit=limit)).raw
        return await self._executor(partial(get_file, uri, limit=limit))

    async def sha256(self, uri: str, *, limit: int) -> str:
        """Return the digest of an object of at most `limit` bytes, in hex. Raises ObjectError."""
        content = await self.get(uri, limit=limit)
        return await self._executor(lambda: hashlib.sha256(content).hexdigest())

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes. Raises ObjectError."""
        if not is_object_uri(folder):
            return await self._executor(partial(file_sizes, folder))
        entries = await self._executor(lambda: tuple(self._objects.entries(folder)))
        return {entry.name: entry.size for entry in entries}


def put_new_file(uri: str, content: bytes, *, root: str) -> None:
    """Write a file that does not exist yet; make the folders between `root` and it.

    `root` is the URI of an existing folder. Raises ObjectError, with EXISTS if there is such a
    file, whole or not.
    """
    with _failures_of(uri):
        _put(uri, content, root, _create)


def put_file(uri: str, content: bytes, *, root: str) -> None:
    """Write a file, whole or not at all, as `put_new_file` does; replace the one of its name."""
    with _failures_of(uri):
        _put(uri, content, root, _replace)


def get_file(uri: str, *, limit: int) -> bytes:
    """Return a file of at most `limit` bytes. Raises ObjectError."""
    with _failures_of(uri), os.fdopen(os.open(_path(uri), _READ), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ObjectError(ObjectFault.TOO_LARGE, f"{uri} has more than {limit} bytes")
    return content


def file_sizes(folder: str) -> dict[str, int]:
    """Return the names of the files in a folder, with their sizes in bytes. Raises ObjectError."""
    with _failures_of(folder), os.scandir(_path(folder)) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


@contextmanager
def _failures_of(uri: str) -> Iterator[None]:
    try:
        yield
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


def _path(uri: str) -> str:
    return "/" + "/".join(uri_parts(uri).segments)
