"""Checks that an archive is still in place, before rows that it holds are deleted.

Only the manifest is read: the files that it names were compared when the batch was archived.

Tested by tests/contract/test_ledger_purge.py.
"""

import hashlib

from producer.retention.manifest import MOST_BYTES, NAME
from schemas.objects.errors import ObjectError, ObjectFault
from schemas.objects.write_once import WriteOnceStore

_LOST = {
    ObjectFault.GONE: "is not there any more",
    ObjectFault.NO_BUCKET: "is not there any more: nor is its bucket",
    ObjectFault.TOO_LARGE: "has other content than when the archive was verified",
}


async def archive_fault(store: WriteOnceStore, uri: str, digest: bytes | None) -> str:
    """Return how the manifest below `uri` is not what was verified; empty if it is.

    `digest` is the SHA-256 that the ledger keeps of it. Raises ObjectError if nobody can tell,
    such as while the store is away.
    """
    try:
        content = await store.get(f"{uri}{NAME}", limit=MOST_BYTES)
    except ObjectError as error:
        if error.fault not in _LOST:
            raise
        return f"{uri}{NAME} {_LOST[error.fault]}"
    if hashlib.sha256(content).digest() != digest:
        return f"{uri}{NAME} {_LOST[ObjectFault.TOO_LARGE]}"
    return ""
