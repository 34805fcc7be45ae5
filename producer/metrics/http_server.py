"""A small HTTP server for monitoring: health, metrics, and little else.

It only reads. It runs in threads of its own, so that it answers while the program is busy, and it
serves few requests at once. Pages other than the health pages need a token, except on a loopback
address. There, a browser of the machine may ask for a web page of a stranger, whose name leads to
this address: without a token, the request must name a loopback address itself.
"""

import hmac
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socket import AF_INET6, SHUT_RDWR
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.config import Secret

log = logging.getLogger(__name__)

MAX_REQUESTS = 32  # connections at once; a further one takes the place of the oldest
PLACE_S = 1.0  # how long a further connection waits for a place
REQUEST_S = 10.0  # a connection that is silent for so long is closed
WHOLE_S = 30.0  # a connection that is open for so long is closed
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_MISDIRECTED = (
    b"ask for http://localhost or http://127.0.0.1 instead of another name of this machine, or set "
    b"DOCLLM_HTTP_TOKEN\n"
)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


def health(reason: str) -> HttpAnswer:
    """Return the answer of a page about health: 503 with what is wrong; an empty text is well."""
    if not reason:
        return HttpAnswer(b"ok\n")
    return HttpAnswer(f"{reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class HttpPage:
    """One path. `answer` runs in a thread of the server; a public page needs no token."""

    answer: Callable[[], HttpAnswer]
    is_public: bool = False


def require_token(address: Address, token: Secret | None) -> None:
    """Raise ConfigError if other machines reach the address, and there is no token."""
    if token is None and not address.is_loopback:
        raise ConfigError(
            f"{address} can be reached from other machines: set DOCLLM_HTTP_TOKEN, which "
            "readers send as 'Authorization: Bearer TOKEN', or listen on 127.0.0.1"
        )


def is_bearer(authorization: bytes, token: Secret) -> bool:
    """Return whether the header `Authorization` has the token."""
    return hmac.compare_digest(authorization, f"Bearer {token.reveal()}".encode())


def is_loopback(host: str) -> bool:
    """Return whether a header's host, with or without a port, is a loopback address."""
    for text in (host, f"{host}:80"):
        with suppress(ValueError):
            return Address.read(text.lower()).is_loopback
    return False


class HttpServer:
    """Serves pages by their exact paths until it is closed.

    Raises ConfigError if the address cannot be used, or if it needs a token and there is none.
    """

    def __init__(
        self, *, address: Address, pages: Mapping[str, HttpPage], token: Secret | None
    ) -> None:
        require_token(address, token)
        try:
            self._server = _Server(address, pages=pages, token=token)
        except OSError as error:
            raise ConfigError(
                f"{address} cannot be listened on: {error.strerror}; name another address"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http", args=(0.1,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port, which the system has chosen if the address has port 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Take no more requests, and free the address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(
        self, address: Address, *, pages: Mapping[str, HttpPage], token: Secret | None
    ) -> None:
        if ":" in address.host:
            self.address_family = AF_INET6
        self.pages, self.token = pages, token
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        self._until_s: dict[Any, float] = {}  # when each connection is closed
        super().__init__((address.host, address.port), _RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False) and not self._take_oldest_place():
            self.shutdown_request(request)
            return
        self._until_s[request] = time.monotonic() + WHOLE_S
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free(request)

    def _take_oldest_place(self) -> bool:
        """Close the oldest connection, so that idle connections cannot block the health pages.

        Otherwise a cluster would restart the program.
        """
        for request in list(self._until_s)[:1]:
            _end(request)
        return self._room.acquire(timeout=PLACE_S)

    def _free(self, request: Any) -> None:
        self._until_s.pop(request, None)
        self._room.release()

    def service_actions(self) -> None:
        """End the connections that take too long; it is called many times a second."""
        now_s = time.monotonic()
        for request, until_s in list(self._until_s.items()):
            if until_s < now_s:
                _end(request)

    def handle_error(self, *_connection: Any) -> None:
        log.debug("a connection failed", exc_info=sys.exception())


def _end(request: Any) -> None:
    with suppress(OSError):  # it has ended by itself
        request.shutdown(SHUT_RDWR)


class _RequestHandler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        self._send(self._answer())

    do_HEAD = do_GET  # noqa: N815 - `http.server` looks for this name

    def _answer(self) -> HttpAnswer:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            return HttpAnswer(b"no such page\n", HTTPStatus.NOT_FOUND)
        if not page.is_public:
            if self.server.token is None and not self._names_loopback():
                return HttpAnswer(_MISDIRECTED, HTTPStatus.MISDIRECTED_REQUEST)
            if not self._is_allowed():
                return HttpAnswer(b"a token is needed\n", HTTPStatus.UNAUTHORIZED)
        try:
            return page.answer()
        except Exception:
            log.exception(
                "%s cannot be answered",
                self.path.partition("?")[0],
                extra={"code": Code.INTERNAL_ERROR},
            )
            return HttpAnswer(b"the page cannot be made\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _names_loopback(self) -> bool:
        """Return whether the header `Host`, which every browser sends, names this machine."""
        hosts = self.headers.get_all("Host", ["localhost"])
        return all(map(is_loopback, hosts))

    def _is_allowed(self) -> bool:
        """Return whether the request has the token; without a token, all requests have it."""
        token = self.server.token
        sent = self.headers.get("Authorization", "").encode()
        return token is None or is_bearer(sent, token)

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Return the name in the header `Server`; no version, which helps nobody but attackers."""
        return "docllm"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing: watchers ask every few seconds."""
