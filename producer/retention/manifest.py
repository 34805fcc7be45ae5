"""The manifest of an archive: what its files are, by number and digest. It is written last.

A reader trusts nothing in it, because anybody may have written the archive's files.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from docllm.producer.ledger.retention.archive_rows import Contents

VERSION = 1
NAME = "manifest.json"
MAX_BYTES = 64 << 20


class ManifestError(Exception):
    """The bytes are not an archive's manifest; the text says why."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of an archive.

    `sha256` is of its bytes, `lines_sha256` of its lines, which no format changes. `first_task` and
    `last_task` are the numbers of its tasks in the ledger.
    """

    name: str
    bytes: int
    tasks: int
    results: int
    dead: int
    first_task: int
    last_task: int
    sha256: str
    lines_sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive is of, and its files in the order of loading."""

    group: str
    batch: str
    batch_id: int
    ledger: str
    archive: int
    format: str
    schema: str
    docllm: str
    created_at: str
    files: tuple[ArchiveFile, ...]

    def stored(self) -> bytes:
        """Return the manifest as its file has it."""
        value = {"version": VERSION, **asdict(self)}
        value |= {name: sum(getattr(file, name) for file in self.files) for name in _SUMMED}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of_stored(cls, content: bytes) -> "Manifest":
        """Return the manifest of a file. Raises ManifestError."""
        try:
            value = orjson.loads(content)
            if value["version"] != VERSION:
                raise ManifestError(f"its version is not {VERSION}")
            fields = {name: value[name] for name in cls.__slots__}
            files = tuple(ArchiveFile(**file) for file in fields.pop("files"))
            if not all(isinstance(fields[name], str) for name in ("group", "batch", "ledger")):
                raise ManifestError("a name in it is no text")
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ManifestError(f"it is no manifest: {type(error).__name__}") from None
        return cls(**fields, files=files)

    def contents(self) -> Contents:
        """Return what the ledger keeps of the manifest."""
        sums: dict[str, Any] = {
            name: sum(getattr(file, name) for file in self.files) for name in _SUMMED
        }
        digest = hashlib.sha256(self.stored()).digest()
        return Contents(files=len(self.files), digest=digest, **sums)


_SUMMED = ("bytes", "tasks", "results", "dead")
