"""The port `LLM`: what a provider, or something that is none, can do to a call, and the value that it ends as."""

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from agent.llm.client import ChatClient
from agent.ports import Call, CallFailed, Reply
from schemas.config import Secret
from schemas.errors import ConfigError

KEY = Secret("sk-test-key-12345678")
BODY = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Summarize: Sales rose. Costs fell."}]})

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def call(timeout_s: float = 5.0, request_id: str = "b/t#1") -> Call:
    return Call(BODY, request_id, timeout_s)


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[ChatClient]:
    made = ChatClient(base_url=url, api_key=KEY, **options)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """A raw server: `serve` gets each connection, and its connection is cut when it returns."""
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


@pytest.fixture(scope="module")
def rehearsal() -> Iterator[str]:
    """One rehearsal LLM, as the program that people start."""
    code = "import sys; from agent.rehearsal import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--latency", "0.5"]
    child = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    yield child.stdout.readline().strip()
    child.terminate()
    assert child.wait(10) == 0
    child.stdout.close()


async def test_a_completion(rehearsal: str) -> None:
    """A call to a server that works gives its status, its headers in lower case, and its body."""
    async with client(rehearsal) as llm:
        reply = await llm.complete(call())

    assert isinstance(reply, Reply)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "Sales rose. Costs fell."


def test_a_thousand_calls_at_once(rehearsal: str) -> None:
    """A thousand calls of half a second are in flight together, none fails, and each is made once."""

    async def run() -> tuple[list[Reply | CallFailed], float]:
        loop = asyncio.get_running_loop()
        async with client(rehearsal) as llm:
            began_s = loop.time()
            replies = await asyncio.gather(*(llm.complete(call(30, f"many/{number}#1")) for number in range(1000)))
            return replies, loop.time() - began_s

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        replies, took_s = runner.run(run())

    assert {reply.status for reply in replies if isinstance(reply, Reply)} == {200}
    assert not [reply for reply in replies if isinstance(reply, CallFailed)]
    assert took_s < 20  # one after another they would take 500 s, a hundred at a time 5 s and more


async def test_what_is_sent() -> None:
    """The request is a POST with our request id, the key, and the body as it was given; the key is in no repr."""
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await request(reader)).decode().lower())
        writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(f"{url}/") as llm:
        await llm.complete(call(request_id="a%20b/t#2"))
        shown = repr(vars(llm))

    assert heads[0].startswith("post /v1/chat/completions http/1.1")
    assert "x-client-request-id: a%20b/t#2" in heads[0]
    assert f"authorization: bearer {KEY.reveal()}" in heads[0]
    assert KEY.reveal() not in shown


async def test_a_connection_is_used_again() -> None:
    """Calls one after another share one connection."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await request(reader)
            writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        for _ in range(5):
            assert isinstance(await llm.complete(call()), Reply)

    assert connections == 1


async def test_a_cut_call_is_not_made_again_behind_our_back() -> None:
    """A kept connection that is cut in the middle of the second call fails that call; the client does not repeat it."""
    seen = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        while True:
            await request(reader)
            seen += 1
            if seen == 2:
                return
            writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        first, second = await llm.complete(call()), await llm.complete(call())

    assert isinstance(first, Reply)
    assert isinstance(second, CallFailed)
    assert second.error_class == "AMBIGUOUS"
    assert seen == 2


async def _cut_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _cut_after_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    await reader.read()


async def _hang_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(response("200 OK", b"{}" * 50)[:-50])
    await reader.read()


AMBIGUOUS = {
    "accepted and cut": _cut_at_once,
    "cut after the request": _cut_after_request,
    "hangs after the request": _hang,
    "hangs in the body": _hang_in_body,
    "half a body": answering(response("200 OK", b"{}" * 50)[:-50]),
    "half a chunk": answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc"),
    "no HTTP": answering(b"220 mail.example.com ESMTP\r\n\r\n"),
    "broken gzip": answering(response("200 OK", b"no gzip at all", "Content-Encoding: gzip")),
    "half a page of error": answering(response("500 Oops", b"x" * 100)[:-50]),
}


@pytest.mark.parametrize("serve", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_what_may_have_been_billed_is_ambiguous(serve: Serve) -> None:
    """Once the connection stood, whatever goes wrong may have been billed."""
    failed = await ended(serve, timeout_s=0.5)

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "AMBIGUOUS"
    assert "127.0.0.1" not in failed.text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_refused_connection_is_network() -> None:
    """Where nobody listens nothing was sent."""
    async with client(f"http://127.0.0.1:{free_port()}") as llm:
        failed = await llm.complete(call())

    assert isinstance(failed, CallFailed)
    assert (failed.error_class, "refused" in failed.text) == ("NETWORK", True)


async def test_an_unknown_name_is_network() -> None:
    """A name that does not exist is not an ambiguous failure."""
    async with client("http://no-such-host.invalid/v1") as llm:
        failed = await llm.complete(call())

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "NETWORK"


async def test_a_failed_handshake_is_network() -> None:
    """A server that does not speak TLS has got nothing of the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with server(serve) as url, client(url.replace("http:", "https:")) as llm:
        failed = await llm.complete(call())

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "NETWORK"


async def test_a_connection_that_is_not_made_in_time_is_network() -> None:
    """When the connect limit passes, and not the total one, nothing was sent."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(deaf.getsockname())
        async with client(f"http://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout_s=0.3) as llm:
            failed = await llm.complete(call())
        for filler in fillers:
            filler.close()

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "NETWORK"


async def test_a_reply_that_is_too_large_when_unpacked() -> None:
    """The limit counts decompressed bytes: a small body that unpacks to much is refused, and not kept in memory."""
    bomb = response("200 OK", gzip.compress(bytes(50 << 20)), "Content-Encoding: gzip")

    failed = await ended(answering(bomb), max_reply_bytes=1 << 20)

    assert failed == CallFailed("REPLY_TOO_LARGE", "the reply is larger than 1048576 bytes")


async def test_a_reply_at_the_limit_is_whole() -> None:
    """A reply of exactly the limit is taken."""
    reply = await ended(answering(response("200 OK", b"x" * 1000)), max_reply_bytes=1000)

    assert isinstance(reply, Reply)
    assert len(reply.body) == 1000


async def test_a_long_error_page_is_cut() -> None:
    """A failure is read as far as a person would, since its status decides."""
    reply = await ended(answering(response("500 Oops", b"x" * (1 << 20))))

    assert isinstance(reply, Reply)
    assert reply.status == 500
    assert len(reply.body) < 200_000


async def test_a_redirect_is_not_followed() -> None:
    """A redirect is an answer: the key does not travel to another address."""
    reply = await ended(answering(response("307 Moved", b"", "Location: http://127.0.0.1:1/")))

    assert isinstance(reply, Reply)
    assert (reply.status, reply.headers["location"]) == (307, "http://127.0.0.1:1/")


async def test_a_header_that_is_no_text_loses_no_reply() -> None:
    """A paid answer is kept when one of its headers cannot be read."""
    reply = await ended(answering(response("200 OK", b"{}", "X-Odd: \xff\xfe", "X-Request-Id: r1")))

    assert isinstance(reply, Reply)
    assert reply.headers == {"x-request-id": "r1", "content-length": "2"}


async def test_a_cancelled_call_ends_at_once() -> None:
    """A cancellation passes through, and does not wait for the call's own limit."""
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        arrived.set()
        await reader.read()

    async with server(serve) as url, client(url) as llm:
        running = asyncio.create_task(llm.complete(call(timeout_s=3)))
        await arrived.wait()
        running.cancel()
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert asyncio.get_running_loop().time() - began_s < 1
        assert running.cancelled()


async def test_cancelled_calls_do_not_block_the_next() -> None:
    """Their connections live on for a while, but take no place from other calls."""
    hung, all_hang = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung
        await request(reader)
        hung += 1
        if hung == 50:
            all_hang.set()
        if hung <= 50:
            await reader.read()
        writer.write(response("200 OK", b"{}"))

    async with server(serve) as url, client(url) as llm:
        running = [asyncio.create_task(llm.complete(call(timeout_s=3))) for _ in range(50)]
        await all_hang.wait()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

        assert isinstance(await llm.complete(call(timeout_s=2)), Reply)


async def test_a_proxy_from_the_environment_is_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY says nothing about a server on this machine."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    assert isinstance(await ended(answering(response("200 OK", b"{}"))), Reply)


async def test_calls_after_the_end_are_values() -> None:
    """A call on a closed client fails as any other."""
    llm = ChatClient(base_url="http://127.0.0.1:1", api_key=None)
    await llm.close()

    assert isinstance(await llm.complete(call()), CallFailed)


@pytest.mark.parametrize("key", ["", "two words", "sk-\u00e4\u00f6\u00fc", "sk-\nx"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    """A key that no header can hold is refused at the start, without showing it."""
    with pytest.raises(ConfigError) as refused:
        ChatClient(base_url="http://127.0.0.1:1", api_key=Secret(key))

    assert not key or key not in str(refused.value)
