"""Checks that an archive is still in place, before rows that it holds are deleted.

The manifest is read, and its files are compared by name and size in one listing. Their content was
compared when the batch was archived.

Tested by tests/contract/test_ledger_purge.py.
"""

import hashlib
from typing import Protocol

from producer.retention.manifest import MAX_BYTES, NAME, Manifest, ManifestError
from schemas.objects.errors import ObjectError, ObjectFault
from schemas.objects.write_once import WriteOnceStore

_ALTERED = "has other content than when the archive was verified"
_LOST = {
    ObjectFault.GONE: "is not there any more",
    ObjectFault.NO_BUCKET: "is not there any more: nor is its bucket",
    ObjectFault.TOO_LARGE: _ALTERED,
}


class ArchiveStore(WriteOnceStore, Protocol):
    """Where archives are written, and listed. Failures are ObjectErrors."""

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes in bytes."""
        ...


async def archive_fault(store: ArchiveStore, uri: str, digest: bytes | None) -> str:
    """Return how the archive at `uri` is not what was verified; empty if it is.

    `digest` is the SHA-256 that the ledger keeps of its manifest. Raises ObjectError if nobody can
    tell, such as while the store is away.
    """
    try:
        content = await store.get(f"{uri}{NAME}", limit=MAX_BYTES)
        if hashlib.sha256(content).digest() != digest:
            return f"{uri}{NAME} {_ALTERED}"
        sizes = await store.sizes(uri)
    except ObjectError as error:
        if error.fault not in _LOST:
            raise
        return f"{uri}{NAME} {_LOST[error.fault]}"
    return _file_fault(uri, content, sizes)


def _file_fault(uri: str, content: bytes, sizes: dict[str, int]) -> str:
    """Return which file of the manifest is missing or has another size; empty if none."""
    try:
        manifest = Manifest.of_stored(content)
    except ManifestError as error:
        return f"{uri}{NAME} cannot be read: {error}"
    for file in manifest.files:
        if file.name not in sizes:
            return f"{uri}{file.name} {_LOST[ObjectFault.GONE]}"
        if sizes[file.name] != file.bytes:
            return f"{uri}{file.name} {_ALTERED}"
    return ""
