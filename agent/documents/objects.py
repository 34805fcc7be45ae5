"""Reads documents that are objects in a store: below allowed prefixes only."""

import asyncio
import logging
from collections.abc import Sequence

from docllm.agent.documents.errors import changed, refused, shown_uri, unreadable
from docllm.agent.handlers.documents import Expected
from docllm.schemas.codes import Code
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.task.allowed_uris import allowed

log = logging.getLogger(__name__)

_AT_ONCE = 16  # objects that one agent fetches at a time, each of up to `max_bytes`
# No later attempt can read such a document, so its task is given up.
_FINAL = frozenset({ObjectFault.NO_BUCKET, ObjectFault.TOO_LARGE, ObjectFault.WRONG_NAME})


class ObjectSource:
    """Reads objects below the prefixes `allow`, in the stores that the environment names.

    Missing rights and credentials can be corrected, so the read is retried later, as it is while a
    store does not answer.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str],
        stores: ObjectStores,
        max_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        self._allow = tuple(allow)
        self._stores = stores
        self._max_bytes = max_bytes
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._allow_logged = False

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        """Return the bytes of an object. Raises DocumentError."""
        if not allowed(uri, self._allow):
            self._log_allow()
            raise refused(
                f"{shown_uri(uri)} is not below an allowed prefix; set DOCLLM_DOCUMENT_ALLOW to "
                "the prefix that may be read"
            )
        try:
            async with self._slots:
                content = await self._stores.get(uri, limit=self._max_bytes, etag=expected.etag)
        except ObjectError as error:
            if error.fault is ObjectFault.CHANGED:
                raise changed(str(error)) from None
            if error.fault is ObjectFault.MISSING and expected.etag is not None:
                raise changed(f"{error}; it did when it was loaded") from None
            raise (refused if error.fault in _FINAL else unreadable)(str(error)) from None
        if expected.size not in {None, len(content.raw)}:
            raise changed(
                f"{uri} has changed since it was loaded: {len(content.raw)} bytes, "
                f"not {expected.size}"
            )
        return content.raw

    def _log_allow(self) -> None:
        """Log the prefixes once. A task's error, which other people read, names none of them."""
        if not self._allow_logged:
            self._allow_logged = True
            log.warning(
                "a document is not below an allowed prefix; allowed are: %s",
                ", ".join(self._allow) or "none",
                extra={"code": Code.DOCUMENT_REFUSED},
            )
