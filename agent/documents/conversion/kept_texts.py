"""Caches the texts of converted documents on disk, so that tasks can share a conversion.

The cache key is the document's digest and the converter's version. Several agents may share the
folder: files appear atomically, and damaged files are ignored.
"""

import hashlib
import logging
import os
import secrets
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from docllm.agent.documents.conversion.protocol import text_from_bytes, text_to_bytes
from docllm.schemas.codes import Code
from docllm.schemas.text.document_text import ReadText

log = logging.getLogger(__name__)

_VERSION = 4  # raise it when the same document gets another text
_LIBRARIES = ("pypdf", "pypdfium2", "selectolax")
_DIGEST_CHARS = 64
_ENDING = ".txt"
_ABANDONED_S = 3600.0  # age from which an unfinished file is taken for that of a killed agent
_FILL = 0.9  # the share of `most_bytes` that is left after a removal


class KeptTexts:
    """Texts in `folder`, at most about `most_bytes`; the least recently used are removed.

    A disk error causes a new conversion and never fails a task.
    """

    def __init__(self, *, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        # Bytes written since the last removal. It begins so high that the first text causes one.
        self._written = most_bytes
        self._told = False

    def get(self, raw: bytes) -> ReadText | None:
        """Return the text of a document and what was left out, None if it is not kept."""
        path = self._path(raw)
        try:
            content = path.read_bytes()
            digest, data = content[:_DIGEST_CHARS], content[_DIGEST_CHARS:]
            if hashlib.sha256(data).hexdigest().encode() != digest:
                path.unlink()
                return None
            os.utime(path)
            return text_from_bytes(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._tell(error)
            return None

    def put(self, raw: bytes, read: ReadText) -> None:
        """Keep the text of a document, and what was left out of it."""
        content = text_to_bytes(read)
        content = hashlib.sha256(content).hexdigest().encode() + content
        if len(content) > self._most_bytes * (1 - _FILL):
            return  # one such text would displace many others
        unfinished = self._folder / f".{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(
                os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(content)
            unfinished.replace(self._path(raw))
        except OSError as error:
            self._tell(error)
            with suppress(OSError):
                unfinished.unlink()
        self._written += len(content)
        if self._written > self._most_bytes * (1 - _FILL):
            self._written = 0
            with suppress(OSError):
                self._remove_oldest()

    def _path(self, raw: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(raw).hexdigest()}-{converter_version()}{_ENDING}"

    def _remove_oldest(self) -> None:
        """Remove the oldest texts above the limit; other agents may do so concurrently."""
        texts = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_ENDING):
                        texts.append((status.st_mtime, status.st_size, entry.path))
                    elif status.st_mtime < time.time() - _ABANDONED_S:
                        Path(entry.path).unlink(missing_ok=True)
        total = sum(size for _, size, _ in texts)
        for _, size, path in sorted(texts) if total > self._most_bytes * _FILL else ():
            if total <= self._most_bytes * _FILL:
                break
            Path(path).unlink(missing_ok=True)
            total -= size

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "texts of converted documents cannot be kept in %s (%s), "
                "so each task converts its document again",
                self._folder,
                error,
                extra={"code": Code.TEXTS_NOT_KEPT},
            )


@cache
def converter_version() -> str:
    """Return a version string: the libraries and rules that determine a document's text."""
    versions = [str(_VERSION)]
    for library in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{library} {metadata.version(library)}")
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]
