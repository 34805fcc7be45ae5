"""Fetches documents by `https://`, below allowed prefixes and from allowed addresses only.

A task's URI is untrusted: its host may resolve to a server inside the network. So each URI,
including a redirect's, must be below an allowed prefix. Its host is resolved here, every address is
checked, and the connection uses a checked address.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    ConnectError,
    ConnectTimeoutError,
    PyreqwestError,
    ReadTimeoutError,
    RequestTimeoutError,
)
from pyreqwest.http import Url
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from docllm.agent.documents.address import Network, Resolve, address_of, is_allowed, resolve
from docllm.agent.documents.errors import changed, refused, shown_uri, unreadable
from docllm.agent.handlers.documents import Expected
from docllm.schemas.clients.http import why
from docllm.schemas.codes import Code
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.allowed_uris import allowed

_MAX_CLIENTS = 32
_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4  # of a host, that are tried
_CONNECT = timedelta(seconds=10)
_IDLE = timedelta(seconds=4)  # many servers close an idle connection after 5 s


log = logging.getLogger(__name__)
_OK = (200, 203)
_REDIRECTS = (301, 302, 303, 307, 308)
_TEMPORARY = (408, 425, 429)
_SERVER_FAILED = 500
_MAX_LOGGED = 100
_NO_DOCUMENTS = ("audio", "font", "image", "video")
_SET_ALLOW = "documents.allow (DOCLLM_DOCUMENT_ALLOW)"
_SET_PRIVATE = "documents.private (DOCLLM_DOCUMENT_PRIVATE)"


@dataclass(frozen=True, slots=True)
class PinnedHost:
    """A host with its port, and the address to reach it at."""

    host: str
    port: int
    address: str


def _new_client(pinned: PinnedHost) -> Client:
    builder = (
        ClientBuilder()
        .user_agent("docllm")
        .https_only(enable=True)
        .no_proxy()
        .follow_redirects(enable=False)
        .referer(enable=False)
        .connect_timeout(_CONNECT)
        .pool_idle_timeout(_IDLE)
    )
    if pinned.host != pinned.address:
        builder = builder.resolve(pinned.host, pinned.address, pinned.port)
    return builder.build()


class WebSource:
    """Documents below the prefixes `allow`.

    Their hosts have public addresses, or addresses in the networks `private`. A document has at
    most `max_bytes` after decompression, and comes within `timeout_s`. `at_once` fetches run at a
    time, which bounds the memory of an agent. `executor` builds the clients, because each one loads
    all trusted certificates.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str],
        executor: Executor,
        private: Sequence[Network] = (),
        resolve: Resolve = resolve,
        max_bytes: int = MAX_DOCUMENT_BYTES,
        timeout_s: float = 60.0,
        at_once: int = 8,
    ) -> None:
        self._allow = tuple(allow)
        self._private = tuple(private)
        self._resolve = resolve
        self._executor = executor
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._clients: OrderedDict[PinnedHost, Client] = OrderedDict()  # the last used at the end
        self._slots = asyncio.Semaphore(at_once)
        self._logged: set[str] = set()

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        """Return the bytes of a document, decompressed. Raises DocumentError."""
        name, timeout_s = shown_uri(uri), self._timeout_s
        url = self._checked(uri, name)
        async with self._slots:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._fetch(url, name, expected)
            except (TimeoutError, ReadTimeoutError, RequestTimeoutError):
                raise unreadable(f"{name} did not come within {timeout_s:g} s") from None
            except PyreqwestError as error:
                raise unreadable(f"{name} cannot be fetched: {why(error)}") from None

    async def _fetch(self, url: Url, name: str, expected: Expected) -> bytes:
        full_name = name
        for _ in range(_MAX_REDIRECTS + 1):
            async with self._answer(url, full_name) as response:
                target = response.get_header("location")
                if response.status not in _REDIRECTS or target is None:
                    _require_document(response, full_name, expected)
                    return await self._body(response, full_name, expected)
            try:
                joined = str(url.join(target))
            except ValueError:
                raise refused(f"{name} is redirected to something that is not an address") from None
            full_name = f"{name}, redirected to {shown_uri(joined)},"
            url = self._checked(joined, full_name)
        raise refused(f"{name} is redirected more than {_MAX_REDIRECTS} times")

    def _checked(self, uri: str, name: str) -> Url:
        """Return the URI in the form that is sent; refuse it unless both forms are allowed."""
        if uri.lower().startswith("http:"):
            raise refused(
                f"{name} is not encrypted, so its server cannot be verified; use https://"
            )
        if not self._allow:
            raise refused(f"{name} may not be fetched: {_SET_ALLOW} is empty")
        if allowed(uri, self._allow):
            try:
                url = Url(uri)
            except ValueError:
                raise refused(f"{name} is not a valid https:// address") from None
            if url.scheme == "https" and allowed(str(url), self._allow):
                return url
        raise refused(f"{name} is not below a prefix of {_SET_ALLOW}")

    @asynccontextmanager
    async def _answer(self, url: Url, name: str) -> AsyncIterator[Response]:
        """Yield the answer from the first address of the host that can be connected to."""
        host, port = (url.host_str or "").strip("[]"), url.port_or_known_default or 443
        hosts = [PinnedHost(host, port, text) for text in await self._addresses(host, port, name)]
        async with AsyncExitStack() as stack:
            for pinned in hosts:
                client = await self._client(pinned)
                request = self._request(client, url)
                try:
                    response = await stack.enter_async_context(request)
                except (ConnectError, ConnectTimeoutError):
                    if pinned is hosts[-1]:
                        raise
                    continue
                yield response
                return

    async def _client(self, pinned: PinnedHost) -> Client:
        """Return the client of a host. Dropped clients end the requests that they have begun."""
        client = self._clients.get(pinned)
        if client is None:
            client = await self._executor(partial(_new_client, pinned))
            self._clients[pinned] = client
        self._clients.move_to_end(pinned)
        if len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        return client

    def _request(self, client: Client, url: Url) -> StreamRequest:
        """Return a request.

        Its timeout closes the connection even if the fetch was abandoned.
        """
        request = client.get(url).timeout(timedelta(seconds=self._timeout_s))
        return request.streamed_read_buffer_limit(0).build_streamed()

    async def _addresses(self, host: str, port: int, name: str) -> list[str]:
        """Return the host's addresses; refuse the host if any of them is not allowed."""
        try:
            addresses = [host] if address_of(host) else list(await self._resolve(host, port))
        except (OSError, UnicodeError):
            raise unreadable(f"{name} cannot be fetched: its host is not found") from None
        closed = next((text for text in addresses if not is_allowed(text, self._private)), None)
        if closed is None and addresses:
            return addresses[:_MAX_ADDRESSES]
        if host not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(host)
            log.warning(
                "a document's host has an address that is not public: %s",
                closed,
                extra={"code": Code.DOCUMENT_REFUSED},
            )
        raise refused(
            f"{name} may not be fetched: its host has an address that is not public; whoever runs "
            f"the agents may allow its network with {_SET_PRIVATE}"
        )

    async def _body(self, response: Response, name: str, expected: Expected) -> bytes:
        body = bytearray()
        while (piece := await response.body_reader.read_chunk()) is not None:
            body += piece
            if len(body) > self._max_bytes:
                raise refused(f"{name} has more than {self._max_bytes} bytes")
        if expected.size not in {None, len(body)}:
            raise changed(
                f"{name} has changed since it was loaded: {len(body)} bytes, not {expected.size}"
            )
        return bytes(body)


def _require_document(response: Response, name: str, expected: Expected) -> None:
    """Refuse an answer whose status or headers show that it carries no document."""
    status = response.status
    if status in _TEMPORARY or status >= _SERVER_FAILED:
        raise unreadable(f"{name} cannot be fetched at the moment: its server answers {status}")
    if status not in _OK:
        raise refused(f"{name} cannot be fetched: its server answers {status}")
    kind = (response.get_header("content-type") or "").partition(";")[0].strip().lower()
    if kind.partition("/")[0] in _NO_DOCUMENTS:
        raise refused(f"{name} is not a document: its server says that it is {kind}")
    etag = response.get_header("etag")
    if expected.etag is not None and etag is not None and _bare(etag) != _bare(expected.etag):
        raise changed(f"{name} has changed since it was loaded: its ETag is another one")


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')
