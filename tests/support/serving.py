"""A server of `docllm serve` in this process, on a free port, and a client that asks it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson

from docllm.producer.app import opened
from docllm.producer.serve.app import application
from docllm.producer.serve.gate import Bounds, Gate
from docllm.producer.serve.server import Server, listen
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.sources import load_config

GROUP = "docllm"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read to its end."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


@dataclass(frozen=True, slots=True)
class Client:
    """Asks a server; `headers` go with each request."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str
    ) -> Answer:
        """Return the answer to a request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            method,
            path,
            body,
            {**self.headers, **named},
            encode_chunked=body is not None and not isinstance(body, bytes),
        )
        answer = connection.getresponse()
        try:
            return Answer(answer.status, answer.read(), dict(answer.headers))
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Return the answer to a GET."""
        return self.ask("GET", path, None, **headers)

    def post(self, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Return the answer to a POST."""
        return self.ask("POST", path, body, **headers)


@contextmanager
def running(make: Callable[[], Any]) -> Iterator[Client]:
    """Serve what `make` yields, an asynchronous context, on a thread of its own."""
    listening = listen(Address("127.0.0.1", 0))
    port = listening.getsockname()[1]
    ready, failures = threading.Event(), list[BaseException]()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        async with make() as gate:
            server = Server(gate)
            loop = asyncio.get_running_loop()
            stop.append(lambda: loop.call_soon_threadsafe(server.stop))
            ready.set()
            await server.serve(sockets=[listening])

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as failure:  # noqa: BLE001 - raised where the server is used
            failures.append(failure)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        if stop:
            yield Client(port)
    finally:
        for each in stop:
            each()
        thread.join()
        listening.close()
    if failures:
        raise failures[0]


@contextmanager
def served(
    folder: Path, *, bounds: Bounds | None = None, hosts: tuple[str, ...] = (), **environ: str
) -> Iterator[Client]:
    """Serve a group on the embedded parts of a folder."""
    config = load_config(flags={}, environ=environ, cwd=folder)

    @asynccontextmanager
    async def make() -> AsyncIterator[Gate]:
        async with (
            opened(config, GROUP) as parts,
            application(parts, hosts=hosts, bounds=bounds) as gate,
        ):
            yield gate

    with running(make) as client:
        yield client
