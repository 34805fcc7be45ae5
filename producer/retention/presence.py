"""Checks that an archive is still in place, before rows that it holds are deleted.

The manifest is read, and its files are compared by name and size in one listing; before a deletion
they are read too, one after another, and compared by digest.
"""

import hashlib
from typing import Protocol

from docllm.producer.retention.manifest import MAX_BYTES, NAME, Manifest, ManifestError
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.write_once import WriteOnceStore

# Faults after which the same command may go on later.
OUTAGES = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.NO_BUCKET})
_ALTERED = "has other content than when the archive was verified"
_LOST = {
    ObjectFault.MISSING: "is not there any more",
    ObjectFault.NO_BUCKET: "is not there any more: nor is its bucket",
    ObjectFault.TOO_LARGE: _ALTERED,
}


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
    except ManifestError as error:
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
