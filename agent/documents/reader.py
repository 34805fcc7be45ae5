"""Reads a document: chooses its source by the URI, compares the digest, converts it to text."""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from docllm.agent.documents.conversion.by_content import ByContent, run_by_size
from docllm.agent.documents.errors import changed, refused, shown_uri, unreadable
from docllm.agent.handlers.documents import DocumentError, Expected, require_content
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.document_text import ReadText
from docllm.schemas.text.untrusted import describe_error, is_panic

_BYTES_IN_FLIGHT = 4 * MAX_DOCUMENT_BYTES
_USUAL_BYTES = MAX_DOCUMENT_BYTES // 2  # assumed for a document of unknown size
_OF_ONE_HOST = _BYTES_IN_FLIGHT // _USUAL_BYTES // 2


class BytesInFlight:
    """Limits the bytes held in total to `most`; further callers wait, first come, first served."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes, or the whole budget if `size` is larger."""
        size = min(size, self._most)
        if self._waiting or size > self._free:
            await self._wait(size)
        else:
            self._free -= size
        try:
            yield
        finally:
            self._give_back(size)

    async def _wait(self, size: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except BaseException:
            # The cancelled caller may hold bytes already; otherwise, smaller requests behind it may
            # fit.
            self._give_back(size if turn.done() and not turn.cancelled() else 0)
            raise

    def _give_back(self, size: int) -> None:
        self._free += size
        while self._waiting:
            next_size, turn = self._waiting[0]
            if not turn.done() and next_size > self._free:
                return
            self._waiting.popleft()
            if not turn.done():  # a cancelled one is done
                self._free -= next_size
                turn.set_result(None)


class HostShares:
    """Lets `most` documents of each web server be in flight; others wait in order.

    The server is the one that the task's URI names, also if it redirects to another one.

    Documents from other sources are not bounded.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, uri: str) -> AsyncIterator[None]:
        """Hold a place of the URI's host; wait for it if all are taken."""
        host = _host(uri)
        if not host:
            yield
            return
        self._users[host] += 1
        try:
            async with self._places.setdefault(host, asyncio.Semaphore(self._most)):
                yield
        finally:
            self._users[host] -= 1
            if not self._users[host]:  # hosts come from tasks, so unused names must not pile up
                del self._users[host], self._places[host]


def _host(uri: str) -> str:
    """Return the host of an https URI; empty for any other URI."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
    except ValueError:
        return ""  # its source refuses it
    return host.rstrip(".") if parts.scheme == "https" else ""


class DocumentSource(Protocol):
    """Fetches documents of one kind of URI."""

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        """Return the bytes of a document, at most MAX_DOCUMENT_BYTES.

        Refuses a URI that the settings do not allow, and a document of another size or ETag than
        expected. The digest is compared by the caller. Raises DocumentError.
        """
        ...


class Documents:
    """Reads documents from `sources`, which are by the scheme of the URI.

    `executor` is for work on large documents.
    """

    def __init__(
        self, *, sources: Mapping[str, DocumentSource], conversion: ByContent, executor: Executor
    ) -> None:
        self._sources = dict(sources)
        self._conversion = conversion
        self._executor = executor
        self._in_flight = BytesInFlight(_BYTES_IN_FLIGHT)
        self._hosts = HostShares(_OF_ONE_HOST)

    async def read(self, uri: str, expected: Expected) -> ReadText:
        """Return the text of the document, and what was left out of it. Raises DocumentError."""
        try:
            return await self._text(uri, expected)
        except (DocumentError, MemoryError):
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise unreadable(
                f"{shown_uri(uri)} cannot be read, because its reader fails: "
                f"{describe_error(error)}"
            ) from error

    async def _text(self, uri: str, expected: Expected) -> ReadText:
        source, name = self._source(uri), shown_uri(uri)
        size = _USUAL_BYTES if expected.size is None else expected.size
        if size > MAX_DOCUMENT_BYTES:  # else its line could stop all other documents meanwhile
            raise refused(
                f"the task's line says that {name} has {size} bytes; at most {MAX_DOCUMENT_BYTES} "
                "are read"
            )
        async with AsyncExitStack() as held:
            async with self._hosts.hold(uri):  # first: a slow host's documents hold no memory
                await held.enter_async_context(self._in_flight.hold(size))
                raw = await source.fetch(uri, expected)
            await self._require_digest(raw, name, expected.sha256)
            read = await self._conversion.text(raw, name)
            require_content(read.text, name)
            return read

    def _source(self, uri: str) -> DocumentSource:
        scheme, colon, _rest = uri.partition(":")
        source = self._sources.get(scheme.lower()) if colon else None
        if source is None:
            raise refused(
                f"{shown_uri(uri)} is not a URI of a document; "
                "write file:///, https://, s3://, gs:// or az://"
            )
        return source

    async def _require_digest(self, raw: bytes, name: str, sha256: str | None) -> None:
        if sha256 is None:
            return
        digest = await run_by_size(
            self._executor, lambda: hashlib.sha256(raw).hexdigest(), size=len(raw)
        )
        if digest != sha256:
            raise changed(f"{name} has changed since it was loaded: its SHA-256 is another one")
