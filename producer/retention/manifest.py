"""The manifest of an archive, which is written last, and whether its files are in place.

A reader trusts nothing in it, because anybody may have written the archive's files.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.write_once import WriteOnceStore

VERSION = 1
NAME = "manifest.json"
MAX_BYTES = 64 << 20


_SUMMED = ("bytes", "tasks", "results", "dead")
# Faults after which the same command may go on later.
OUTAGES = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.NO_BUCKET})
_ALTERED = "has other content than when the archive was verified"
_LOST = {
    ObjectFault.MISSING: "is not there any more",
    ObjectFault.NO_BUCKET: "is not there any more: nor is its bucket",
    ObjectFault.TOO_LARGE: _ALTERED,
}


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
        value = {"version": VERSION, **asdict(self), **self._sums()}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of_stored(cls, content: bytes) -> "Manifest":
        """Return the manifest of a file. Raises ValueError, whose text says why."""
        try:
            value = orjson.loads(content)
            if value["version"] != VERSION:
                raise ValueError(f"its version is not {VERSION}")
            fields = {name: value[name] for name in cls.__slots__}
            files = tuple(ArchiveFile(**file) for file in fields.pop("files"))
            if not all(isinstance(fields[name], str) for name in ("group", "batch", "ledger")):
                raise ValueError("a name in it is no text")
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no manifest: {type(error).__name__}") from None
        return cls(**fields, files=files)

    def contents(self) -> dict[str, Any]:
        """Return what the ledger keeps: numbers of files, bytes and tasks, and the SHA-256."""
        digest = hashlib.sha256(self.stored()).digest()
        return {"files": len(self.files), **self._sums(), "digest": digest}

    def _sums(self) -> dict[str, Any]:
        return {name: sum(getattr(file, name) for file in self.files) for name in _SUMMED}


class ArchiveStore(WriteOnceStore, Protocol):
    """Where archives are written, read back, and listed. Failures are ObjectErrors."""

    async def sha256(self, uri: str, *, limit: int) -> str:
        """Return the digest of an object of at most `limit` bytes, in hex."""
        ...

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes in bytes."""
        ...


async def archive_fault(store: ArchiveStore, uri: str, digest: bytes | None, *, reads: bool) -> str:
    """Return how the archive at `uri` is not what was verified; empty if it is.

    `digest` is the SHA-256 that the ledger keeps of its manifest. With `reads`, all files are read.
    Raises ObjectError if nobody can tell, such as while the store is away.
    """
    at = f"{uri}{NAME}"
    try:
        content = await store.get(at, limit=MAX_BYTES)
        if hashlib.sha256(content).digest() != digest:
            return f"{at} {_ALTERED}"
        manifest = Manifest.of_stored(content)
        if fault := _listing_fault(uri, manifest, await store.sizes(uri)):
            return fault
        for file in manifest.files if reads else ():
            at = f"{uri}{file.name}"
            if await store.sha256(at, limit=file.bytes) != file.sha256:
                return f"{at} {_ALTERED}"
    except ValueError as error:
        return f"{at} cannot be read: {error}"
    except ObjectError as error:
        if error.fault not in _LOST:
            raise
        return f"{at} {_LOST[error.fault]}"
    return ""


def _listing_fault(uri: str, manifest: Manifest, sizes: dict[str, int]) -> str:
    """Return which file of the manifest is missing or has another size; empty if none."""
    for file in manifest.files:
        if file.name not in sizes:
            return f"{uri}{file.name} {_LOST[ObjectFault.MISSING]}"
        if sizes[file.name] != file.bytes:
            return f"{uri}{file.name} {_ALTERED}"
    return ""
