"""Servers for documents by `https://`, and listeners that nothing may reach."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from docllm.agent.documents.address import Resolve
from docllm.agent.documents.web import WebSource
from docllm.agent.handlers import DocumentError
from docllm.agent.handlers.documents import Expected
from docllm.schemas.runtime.executors import InlineExecutor
from tests.servers.secure import Authority

HOST = "docs.invalid"  # a name that no name server knows
OTHER = "other.invalid"
OPEN, CLOSED = "127.0.0.2", "127.0.0.1"
PRIVATE = (ip_network(f"{OPEN}/32"),)  # stands for the internet; the rest of this machine is closed

Answer = Callable[[str], bytes]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return the files of an authority, and of a certificate of both hosts with its key."""
    authority = Authority(tmp_path_factory.mktemp("site") / "authority")
    return (authority.ca, *authority.issue("web", HOST, OTHER, "localhost"))


@pytest.fixture
def certificate(site: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return a server's certificate, which clients made in the test trust."""
    monkeypatch.setenv("SSL_CERT_FILE", str(site[0]))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*site[1:])
    return context


@dataclass
class DocumentServer:
    """A server that answers each request; `requests` has their heads, `port` is where it is."""

    answer: Answer
    port: int = 0
    requests: list[str] = field(default_factory=list)
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving[task] = writer
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.requests.append(head)
                answer = self.answer(head)
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer:
                    break
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    async def end(self) -> None:
        """Cut all connections."""
        for task, writer in self.serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    def uri(self, path: str = "/a.txt", host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"


@asynccontextmanager
async def document_server(
    certificate: ssl.SSLContext, answer: Answer, address: str = OPEN
) -> AsyncIterator[DocumentServer]:
    """Run a server of documents."""
    server = DocumentServer(answer)
    started = await asyncio.start_server(server.serve, address, 0, ssl=certificate)
    server.port = started.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        started.close()
        await server.end()
        await started.wait_closed()


@dataclass
class Listener:
    """A place that nothing may connect to; `hits` counts connections."""

    port: int = 0
    hits: int = 0

    def hit(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hits += 1
        writer.close()


@asynccontextmanager
async def forbidden(port: int = 0) -> AsyncIterator[Listener]:
    """Listen on one port of 127.0.0.1 and of other addresses of this machine."""
    listener = Listener(port)
    async with AsyncExitStack() as stack:
        for address in (CLOSED, "127.1.2.3", "::1"):
            with suppress(OSError):  # a machine may have no IPv6
                started = await asyncio.start_server(listener.hit, address, listener.port)
                listener.port = started.sockets[0].getsockname()[1]
                stack.callback(started.close)
        yield listener


def reply(body: bytes = b"text", *headers: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def answers(*rounds: Sequence[str]) -> Resolve:
    """Return a resolver that gives these addresses, one round for each question; the last stays."""
    left = list(rounds)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def web(allow: Sequence[str], resolve: Resolve | None = None, **options: Any) -> WebSource:
    return WebSource(
        allow=allow,
        executor=InlineExecutor(),
        resolve=resolve or answers([OPEN]),
        **{"private": PRIVATE, **options},
    )


async def refusal(reader: WebSource, uri: str, expected: Expected = Expected()) -> tuple[str, str]:  # noqa: B008
    """Return the class and text of the error of a document that is not fetched."""
    with pytest.raises(DocumentError) as error:
        await reader.fetch(uri, expected)
    return error.value.failure.error_class, error.value.failure.text
