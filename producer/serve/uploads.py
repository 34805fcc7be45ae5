"""Keeps the files that clients upload, each in a folder of its own, for 30 days.

A file appears whole: its folder gets its name when content and description are on the disk. Names
of files come from clients, and are never part of a path.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from docllm.producer.text.output_file import sync_folder
from docllm.producer.text.private_files import FILE_MODE, FOLDER_MODE, make_folder
from docllm.schemas.runtime.clock import Clock

KEPT_S = 30 * 86_400
ABANDONED_S = 86_400  # after which an upload that did not end is removed
NAME_CHARS = 255
_ID = re.compile(r"file-[0-9a-f]{32}")
_DRAFT = re.compile(r"\.(?:file-)?[0-9a-f]{32}")
_CONTENT, _ABOUT = "content", "about.json"


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file; times are seconds of Unix time."""

    id: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int
    purpose: str = "batch"

    def as_json(self) -> dict[str, Any]:
        """Return the file object of OpenAI's API."""
        return {"object": "file", "status": "processed", **asdict(self)}


def new_number(clock: Clock) -> str:
    """Return 32 hexadecimal digits that no one guesses; later ones are greater."""
    return f"{int(clock.utc_s() * 1e9):016x}{secrets.token_hex(8)}"


class Uploads:
    """The uploaded files in a folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def keep(self, file: IO[bytes], filename: str, kept_s: int = KEPT_S) -> Upload:
        """Store a copy of a file. Raises OSError, and then keeps nothing."""
        now, number = int(self._clock.utc_s()), new_number(self._clock)
        make_folder(self._folder)
        draft = self._folder / f".{number}"
        draft.mkdir(FOLDER_MODE)
        try:
            with _private(draft / _CONTENT) as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
                size = copy.tell()
            upload = Upload(f"file-{number}", filename[:NAME_CHARS], size, now, now + kept_s)
            with _private(draft / _ABOUT) as about:
                about.write(orjson.dumps(asdict(upload)))
            sync_folder(draft)
            draft.rename(self._folder / upload.id)
            sync_folder(self._folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return upload

    def find(self, file_id: str) -> Upload | None:
        """Return a file, or None if there is none of this id, or no more."""
        upload = self._read(file_id)
        return upload if upload is not None and not self._is_over(upload) else None

    def _read(self, file_id: str) -> Upload | None:
        if _ID.fullmatch(file_id) is None:
            return None
        try:
            return Upload(**orjson.loads((self._folder / file_id / _ABOUT).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _is_over(self, upload: Upload) -> bool:
        return upload.expires_at <= self._clock.utc_s()

    def content(self, upload: Upload) -> Path:
        """Return the path of a file's content."""
        return self._folder / upload.id / _CONTENT

    def all(self) -> list[Upload]:
        """Return the files, the newest first."""
        found = map(self.find, sorted(self._names(), reverse=True))
        return [upload for upload in found if upload is not None]

    def delete(self, upload: Upload) -> None:
        """Delete a file; a reader that has opened it reads on."""
        gone = self._folder / f".{upload.id}"
        with suppress(FileNotFoundError):
            (self._folder / upload.id).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def clean(self) -> None:
        """Delete the files whose time is over, and what uploads and deletes have left behind."""
        before_s = self._clock.utc_s() - ABANDONED_S
        for name in self._names():
            path = self._folder / name
            if _DRAFT.fullmatch(name) is not None:
                with suppress(OSError):  # another server was faster
                    if path.stat().st_mtime < before_s:
                        shutil.rmtree(path)
            elif (upload := self._read(name)) is not None and self._is_over(upload):
                self.delete(upload)

    def _names(self) -> Iterator[str]:
        with suppress(FileNotFoundError):
            yield from [path.name for path in self._folder.iterdir()]


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that is on the disk when the block ends."""
    with open(path, "xb", opener=_open) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
