"""HTTP/1.1 for the rehearsal LLM: reads whole requests, sends planned answers.

Requests have a Content-Length and are served one at a time on a connection. This module knows no
path and no fault: its Plan says what to answer, when, and how the connection ends.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http.client import responses
from ipaddress import ip_address
from typing import cast

_MAX_HEAD_BYTES = 64 << 10
_MAX_BODY_BYTES = 64 << 20
_MAX_LENGTH_CHARS = len(str(_MAX_BODY_BYTES))


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are lower case. `local`: it comes from this machine."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    local: bool = False


class Ending(Enum):
    """What becomes of the connection."""

    KEEP = "keep"
    CUT = "cut"  # half of the answer, then a reset
    HANG = "hang"  # no answer, until the client leaves


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    """A planned answer.

    `done` is called once with the number of bytes sent, and whether the client had left before.
    """

    answer: bytes
    delay_s: float = 0.0
    ending: Ending = Ending.KEEP
    done: Callable[[int, bool], None] | None = None


def response(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a JSON response."""
    more_headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"HTTP/1.1 {status} {responses.get(status, 'Status')}\r\nContent-Type: application/json\r\n"
    )
    return f"{head}{more_headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _RefusedError(Exception):
    """Bytes that are no request of the kind that is served here."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _is_loopback(peer: tuple[str, int] | None) -> bool:
    return peer is not None and ip_address(peer[0]).is_loopback


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self, *, plan: Callable[[Request], ResponsePlan], open_connections: set["Connection"]
    ) -> None:
        self._plan = plan
        self._open = open_connections
        self._buffer = bytearray()
        self._current: ResponsePlan | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the set of open connections."""
        self._transport = cast("asyncio.Transport", transport)
        self._local = _is_loopback(transport.get_extra_info("peername"))
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the set; a call that was under way is over."""
        del exc
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._end_answer(0, left=True)

    def data_received(self, data: bytes) -> None:
        """Collect bytes, and answer the next whole request unless an answer is under way."""
        self._buffer += data
        try:
            self._next()
        except _RefusedError as refused:
            self._transport.write(response(refused.status, b"{}", {"Connection": "close"}))
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _next(self) -> None:
        while (
            self._current is None
            and not self._transport.is_closing()
            and (request := self._take()) is not None
        ):
            self._current = plan = self._plan(request)
            if plan.ending is Ending.HANG:
                return
            if plan.delay_s > 0:
                self._timer = asyncio.get_running_loop().call_later(plan.delay_s, self._after_delay)
            else:
                self._answer()

    def _after_delay(self) -> None:
        self._answer()
        self.data_received(b"")

    def _answer(self) -> None:
        plan = self._current
        if plan is None:
            return
        whole = plan.ending is Ending.KEEP
        sent = plan.answer if whole else plan.answer[: len(plan.answer) // 2]
        self._transport.write(sent)
        self._end_answer(len(sent), left=False)
        if not whole:
            self._transport.abort()

    def _end_answer(self, sent_bytes: int, *, left: bool) -> None:
        plan, self._current, self._timer = self._current, None, None
        if plan is not None and plan.done is not None:
            plan.done(sent_bytes, left)

    def _take(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise _RefusedError(431)
            return None
        first, *rest = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in rest)
        }
        words = first.split(" ")
        # Method, path and version.
        if len(words) != 3 or "transfer-encoding" in headers:  # noqa: PLR2004
            raise _RefusedError(411)
        length = headers.get("content-length", "0")
        if (
            not length.isdecimal()
            or len(length) > _MAX_LENGTH_CHARS
            or int(length) > _MAX_BODY_BYTES
        ):
            raise _RefusedError(413)
        if len(self._buffer) < (stop := end + 4 + int(length)):
            return None
        body = bytes(self._buffer[end + 4 : stop])
        del self._buffer[:stop]
        return Request(words[0], words[1], headers, body, self._local)
