"""Runs an application on a socket, and ends connections that are silent for too long."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from docllm.producer.serve.gate import Gate
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address

DRAIN_S = 20  # for requests that run when the server is told to stop


def listen(address: Address) -> socket.socket:
    """Return a socket that listens. Raises ConfigError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{address} cannot be listened on: {error.strerror}; name another address"
        ) from None
    return listening


class Server(uvicorn.Server):
    """A server that leaves signals alone; whoever runs it calls `stop`."""

    def __init__(self, gate: Gate) -> None:
        # What a request broke is logged where it is answered; the rest is the client's.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        super().__init__(
            uvicorn.Config(
                gate,
                interface="asgi3",
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=gate.bounds.connections,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    def stop(self) -> None:
        """Take no more requests, and end once those that run are answered."""
        self.should_exit = True


class _Connection(H11Protocol):
    """A connection that must ask within a time, and take its answer."""

    _asked: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._gate: Gate = self.config.loaded_app
        self.app = self._answer
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._asked is not None:
            self._asked.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()

    def _await_request(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
        self._asked = self.loop.call_later(self._gate.bounds.request_s, self._end_unasked)

    def _end_unasked(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            try:
                async with asyncio.timeout(self._gate.bounds.silent_s):
                    await send(message)
            except TimeoutError:
                self.transport.abort()
                raise

        await self._gate(scope, receive, sent)
