"""Reads documents that are files of this machine: from allowed roots only, in a thread.

Hidden files, docllm's own and the system's are never documents;
`producer/input/excluded_files.py` defines them.

The path is resolved first, and then opened folder by folder from its root without following links.
So a link that is created in between is not followed. A pipe or a device cannot block the thread:
the open does not block, and the handle's type is checked. A hard link below a root may name a file
that lies elsewhere, so it must not be docllm's own, nor belong to somebody else.
"""

import logging
import os
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docllm.agent.documents.errors import changed, refused, unreadable
from docllm.agent.handlers.documents import Expected
from docllm.producer.input.excluded_files import inodes, resolved, root_of
from docllm.schemas.codes import Code
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.untrusted import contained

log = logging.getLogger(__name__)

_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileSource:
    """Reads files below `roots`, except `own`, the files and folders of docllm itself."""

    def __init__(
        self,
        *,
        roots: Sequence[Path],
        executor: Executor,
        own: Sequence[Path] = (),
        max_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        self._roots = tuple(roots)
        self._own = tuple(own)
        self._roots_logged = False
        self._executor = executor
        self._max_bytes = max_bytes

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        """Return the bytes of a file. Raises DocumentError."""
        return await self._executor(partial(self._fetch, uri, expected.size))

    def _fetch(self, uri: str, size: int | None) -> bytes:
        with contained():
            return self._read(uri, size)

    def _read(self, uri: str, size: int | None) -> bytes:
        try:
            handle = self._open(_path(uri), uri)
            try:
                self._require_same(os.fstat(handle), uri, size)
                with os.fdopen(handle, "rb", closefd=False) as file:
                    raw = file.read(self._max_bytes + 1)
            finally:
                os.close(handle)
        except OSError as error:
            raise unreadable(f"{uri} cannot be read: {error.strerror}") from error
        if len(raw) > self._max_bytes or size not in {None, len(raw)}:
            raise changed(f"{uri} changed while it was read")
        return raw

    def _require_same(self, status: os.stat_result, uri: str, size: int | None) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise refused(f"{uri} is not a regular file")
        if status.st_nlink > 1 and self._is_foreign(status):
            raise refused(
                f"{uri} is a hard link to a file of docllm's own or of another user; copy the file"
            )
        if size is not None and status.st_size != size:
            raise changed(
                f"{uri} has changed since it was loaded: {status.st_size} bytes, not {size}"
            )
        if status.st_size > self._max_bytes:
            raise refused(f"{uri} has {status.st_size} bytes; at most {self._max_bytes} are read")

    def _is_foreign(self, status: os.stat_result) -> bool:
        """Return whether a file with several names was probably linked by one who may not read it.

        Whoever owns a root may link files of their own in it.
        """
        owners = {os.geteuid(), *map(_owner, self._roots)}
        return status.st_uid not in owners or (status.st_dev, status.st_ino) in inodes(self._own)

    def _open(self, path: Path, uri: str) -> int:
        target, roots = Path(os.path.realpath(path)), resolved(self._roots)
        root = root_of(target, roots, resolved(self._own))
        if root is not None:
            return _open_below(root, target.relative_to(root).parts)
        if any(target.is_relative_to(allowed) and target != allowed for allowed in roots):
            raise refused(
                f"{uri} is hidden, or belongs to docllm or the system, so no agent reads it; name "
                "another document"
            )
        self._log_roots()
        raise refused(
            f"{uri} is not below an allowed root; set DOCLLM_DOCUMENT_ROOTS to the folder that may "
            "be read"
        )

    def _log_roots(self) -> None:
        """Log the roots once. A task's error, which other people read, names none of them."""
        if not self._roots_logged:
            self._roots_logged = True
            log.warning(
                "a document is not below an allowed root; allowed are: %s",
                ", ".join(map(str, self._roots)) or "none",
                extra={"code": Code.DOCUMENT_REFUSED},
            )


def _owner(root: Path) -> int | None:
    try:
        return root.stat().st_uid
    except OSError:
        return None


def _path(uri: str) -> Path:
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise refused(f"{uri} is no URI; write file:///folder/name") from None
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise refused(
            f"{uri} is not a file on this machine; only file:/// is read, nothing is fetched"
        )
    if "?" in uri or "#" in uri:
        raise refused(
            f"{uri} has a query or a fragment, which no file has; write ? as %3F and # as %23"
        )
    path = unquote(parts.path, errors="surrogateescape")
    if not path.startswith("/") or "\0" in path:
        raise refused(f"{uri} is not a whole path")
    return Path(path)


def _open_below(root: Path, parts: tuple[str, ...]) -> int:
    """Return a handle of the file, opened part by part below the root.

    A link on the way raises OSError.
    """
    folder = os.open(root, _OPEN_FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _OPEN_FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], _OPEN_FILE, dir_fd=folder)
    finally:
        os.close(folder)
