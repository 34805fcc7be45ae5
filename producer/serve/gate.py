"""Decides which requests come in, and bounds their bodies.

A browser on this machine, or in its network, may ask for a stranger's web page, which then asks
here. Such a request names a stranger as `Host` or `Origin`, or says `Sec-Fetch-Site: cross-site`.
No such request comes in, with or without a token, on a loopback address too.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from docllm.producer.metrics.http_server import is_bearer, is_loopback
from docllm.producer.serve.refusal import DenyError
from docllm.schemas.settings.config import Secret

HEALTH = "/livez"  # open to all
MAX_HEAD_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a client may take.

    - `request_s`: the time in which a connection must have sent the head of a request
    - `silent_s`: how long a client may neither send its body nor take its answer
    - `body_s`, `body_bytes`: the time and size of a body
    - `connections`: at once; further ones get 503
    """

    request_s: float = 10.0
    silent_s: float = 30.0
    body_s: float = 900.0
    body_bytes: int = 512 << 20
    connections: int = 128


class Gate:
    """An application behind the checks that every request must pass.

    `hosts` are the names under which the server may be asked for, beside those of this machine.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: Secret | None, bounds: Bounds
    ) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._token = token
        self.bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        body = _Body(scope, receive, send, self.bounds)
        # As it was sent: a name in the path may have a slash, written as %2F.
        scope["path"] = scope["raw_path"].decode("ascii")
        try:
            self._check(scope["path"], Headers(scope=scope))
        except DenyError as refused:
            await refused.answer()(scope, body.receive, body.send)
            return
        await self._app(scope, body.receive, body.send)

    def _check(self, path: str, headers: Headers) -> None:
        """Raise DenyError for a request that may not come in."""
        if sum(len(name) + len(value) for name, value in headers.raw) > MAX_HEAD_BYTES:
            raise DenyError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            raise DenyError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the header Host names another server; ask for http://localhost or "
                "http://127.0.0.1, or start docllm serve with --allowed-host NAME",
            )
        for origin in headers.getlist("origin"):
            if origin.partition("://")[2].lower() != hosts[0].lower():
                raise DenyError(HTTPStatus.FORBIDDEN, "web pages of other sites may not ask here")
        if any(site not in {"same-origin", "none"} for site in headers.getlist("sec-fetch-site")):
            raise DenyError(HTTPStatus.FORBIDDEN, "web pages of other sites may not ask here")
        sent = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and path != HEALTH and not is_bearer(sent, self._token):
            raise DenyError(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: send DOCLLM_HTTP_TOKEN of the server as "
                "'Authorization: Bearer TOKEN', or as the API key of an OpenAI client",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if headers.get("content-encoding", "identity") != "identity":
            raise DenyError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "packed bodies are not read; send it unpacked"
            )

    def _is_own(self, host: str) -> bool:
        """Return whether a `Host` means this server.

        With a token, any address in numbers does: no stranger's name leads here by it.
        """
        if is_loopback(host):
            return True
        name = _name_of(host)
        if name in self._hosts:
            return True
        with suppress(ValueError):
            return self._token is not None and bool(ip_address(name))
        return False


def _name_of(host: str) -> str:
    """Return the name of a `Host`, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


class _Body:
    """The body of one request, and the answer to it, bounded in size and time."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bounds: Bounds) -> None:
        headers = Headers(scope=scope)
        self._receive, self._send, self._bounds = receive, send, bounds
        length = headers.get("content-length", "0")
        self._declared = int(length) if length.isdecimal() else 0
        self._is_unread = bool(self._declared) or "transfer-encoding" in headers
        self._size = 0
        self._until_s = asyncio.get_running_loop().time() + bounds.body_s

    async def receive(self) -> Message:
        """Return the next part of the body. Raises DenyError for one that is too large or slow."""
        if not self._is_unread:
            return await self._receive()
        if self._declared > self._bounds.body_bytes:
            raise self._too_large()
        left_s = self._until_s - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(self._bounds.silent_s, left_s)):
                message = await self._receive()
        except TimeoutError:
            raise DenyError(
                HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly; nothing of it is used"
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._bounds.body_bytes:
            raise self._too_large()
        self._is_unread = bool(message.get("more_body"))
        return message

    def _too_large(self) -> DenyError:
        most = self._bounds.body_bytes
        return DenyError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has more than {most:,} bytes; nothing of it is used; send it in parts",
        )

    async def send(self, message: Message) -> None:
        """Send a part of the answer; if the body was not read to its end, the connection ends."""
        if message["type"] == "http.response.start":
            own = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
            if self._is_unread:
                own.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await self._send(message)
