"""Raw HTTP servers that do anything to a call, and a client that calls them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from docllm.agent.llm.client import ChatClient
from docllm.agent.ports import Call, CallFailed, Reply
from docllm.schemas.settings.config import Secret

KEY = Secret("sk-test-key-12345678")
BODY = orjson.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "Summarize: Sales rose. Costs fell."}]}
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def call(timeout_s: float = 5.0, request_id: str = "b/t#1") -> Call:
    return Call(BODY, request_id, timeout_s)


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[ChatClient]:
    made = ChatClient(base_url=url, **{"api_key": KEY, **options})
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """Run a raw server; `serve` gets each connection, which is cut when `serve` returns."""
    serving: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    started = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}/v1"
    finally:
        started.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)


async def request(reader: asyncio.StreamReader) -> bytes:
    """Read one whole request; return its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len(BODY))
    return head


def answering(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(answer)
        await writer.drain()

    return serve


def response(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def ended(serve: Serve, *, timeout_s: float = 5.0, **options: Any) -> Reply | CallFailed:
    """Return how one call to such a server ends."""
    async with server(serve) as url, client(url, **options) as llm:
        return await llm.complete(call(timeout_s))
