"""The port `LLM`: calls that fail on the way.

The error class tells whether they may have been billed.
"""

import asyncio
import gzip
import socket

import pytest

from docllm.agent.ports import CallFailed, Reply
from docllm.schemas.settings.config import Secret
from docllm.schemas.task.failures import ErrorClass
from tests.contract.providers.http_servers import (
    Serve,
    answering,
    call,
    client,
    ended,
    request,
    response,
    server,
)
from tests.servers.process import free_port


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
}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_body_that_is_compressed_otherwise_is_named(encoding: str) -> None:
    """The error of the HTTP client speaks of the request, which was sent well."""
    encoded = response("200 OK", b'{"choices":[]}', f"Content-Encoding: {encoding}")

    failed = await ended(answering(encoded))

    assert isinstance(failed, CallFailed)
    assert failed.error_class == ErrorClass.AMBIGUOUS
    assert failed.text.startswith("the reply cannot be decompressed (")


@pytest.mark.parametrize("serve", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_a_failure_that_may_have_been_billed_is_ambiguous(serve: Serve) -> None:
    """Once the connection was made, any failure may have been billed."""
    failed = await ended(serve, timeout_s=0.5)

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "AMBIGUOUS"
    assert "127.0.0.1" not in failed.text


async def _hang_in_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(response("429 Wait", b"slow down", "Retry-After: 20")[:-5])
    await reader.read()


CUT_PAGES = {
    "half a page": (answering(response("429 Wait", b"slow down", "Retry-After: 20")[:-5]), b"slow"),
    "half a chunk": (
        answering(
            b"HTTP/1.1 429 Wait\r\nRetry-After: 20\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n"
            b"slow\r\n10\r\n"
        ),
        b"slow",
    ),
    "broken gzip": (
        answering(
            response("429 Wait", b"no gzip at all", "Retry-After: 20", "Content-Encoding: gzip")
        ),
        b"",
    ),
    "hangs in the page": (_hang_in_page, b"slow"),
}


@pytest.mark.parametrize("name", CUT_PAGES)
async def test_a_status_outlives_its_cut_page(name: str) -> None:
    """A refusal whose body cannot be read is still that refusal, with its headers.

    Otherwise a rate limit would count as an attempt.
    """
    serve, came = CUT_PAGES[name]

    reply = await ended(serve, timeout_s=0.5)

    assert isinstance(reply, Reply)
    assert (reply.status, reply.headers["retry-after"], reply.body, reply.cut) == (
        429,
        "20",
        came,
        True,
    )


async def test_a_refused_connection_is_network() -> None:
    """Nothing was sent if nobody listens."""
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
    """A server that does not speak TLS has received nothing of the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with server(serve) as url, client(url.replace("http:", "https:")) as llm:
        failed = await llm.complete(call())

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "NETWORK"


@pytest.mark.parametrize(
    ("status", "error_class", "message"),
    [
        (
            "407 Proxy Authentication Required",
            "AUTH",
            "the proxy asks for a user and a password, set HTTPS_PROXY=",
        ),
        ("403 Forbidden", "NETWORK", "the proxy that HTTPS_PROXY names did not connect"),
        ("502 Bad Gateway", "NETWORK", "the proxy that HTTPS_PROXY names did not connect"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_named(
    status: str, error_class: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person must act if the proxy wants a password.

    The client library does not report any other status of a proxy.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(status, b"", "Proxy-Authenticate: Basic"))
        await writer.drain()

    async with server(serve) as url:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(
                name, url.replace("http://", "http://user:secret-word@").removesuffix("/v1")
            )
        async with client("https://api.example.com/v1") as llm:
            failed = await llm.complete(call())

    assert isinstance(failed, CallFailed)
    assert (failed.error_class, message in failed.text, "secret-word" in failed.text) == (
        error_class,
        True,
        False,
    )


async def test_a_connection_that_is_not_made_in_time_is_network() -> None:
    """If only the connect timeout has passed, nothing was sent."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(deaf.getsockname())
        async with client(
            f"http://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout_s=0.3
        ) as llm:
            failed = await llm.complete(call())
        for filler in fillers:
            filler.close()

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "NETWORK"


async def test_a_reply_that_is_too_large_when_unpacked() -> None:
    """The limit counts decompressed bytes.

    A small body that unpacks to a large one is refused, and not kept in memory.
    """
    bomb = response("200 OK", gzip.compress(bytes(50 << 20)), "Content-Encoding: gzip")

    failed = await ended(answering(bomb), max_reply_bytes=1 << 20)

    assert failed == CallFailed(
        ErrorClass.REPLY_TOO_LARGE, "the reply is larger than 1048576 bytes"
    )


async def test_a_reply_at_the_limit_is_whole() -> None:
    """A reply of exactly the limit is accepted."""
    reply = await ended(answering(response("200 OK", b"x" * 1000)), max_reply_bytes=1000)

    assert isinstance(reply, Reply)
    assert len(reply.body) == 1000


async def test_a_long_error_page_is_cut() -> None:
    """An error page is read as far as a person would, because its status decides."""
    reply = await ended(answering(response("500 Oops", b"x" * (1 << 20))))

    assert isinstance(reply, Reply)
    assert (reply.status, reply.cut) == (500, False)
    assert len(reply.body) < 200_000


@pytest.mark.parametrize("status", ["401 No", "500 Oops", "200 OK"])
async def test_a_key_that_the_provider_repeats_is_masked(status: str) -> None:
    """The key is masked in all other bodies, which may end in a log or a dead letter."""
    key = "4f9a8c7b6d5e4f3a"
    body = f'{{"error":{{"message":"no entry with {key}","code":"invalid_api_key"}}}}'.encode()

    reply = await ended(answering(response(status, body)), api_key=Secret(key))

    assert isinstance(reply, Reply)
    assert reply.body == body.replace(key.encode(), b"***")


@pytest.mark.parametrize("echo", ["Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "my azure secret"])
async def test_a_header_that_the_provider_repeats_is_masked(echo: str) -> None:
    """A header's value is as secret as the key, with its scheme and without."""
    headers = {
        "Authorization": Secret("Basic dXNlcjpwYXNz"),
        "api-key": Secret("my azure secret"),
    }
    body = f'{{"error":{{"message":"wrong: {echo}","code":"invalid"}}}}'.encode()

    reply = await ended(
        answering(response("401 No", body)), api_key=Secret("sk-other-key"), headers=headers
    )

    assert isinstance(reply, Reply)
    assert reply.body == body.replace(echo.encode(), b"***")


@pytest.mark.parametrize("echo", ["a%2Fkey-1", "a/key-1"])
async def test_a_key_in_the_address_that_the_provider_repeats_is_masked(echo: str) -> None:
    """Some servers take the key in the query, and repeat the address or the key in it."""
    body = f'{{"error":{{"message":"no account for {echo}"}}}}'.encode()

    async with (
        server(answering(response("401 No", body))) as url,
        client(f"{url}?v=2&key=a%2Fkey-1", api_key=None) as llm,
    ):
        reply = await llm.complete(call())

    assert isinstance(reply, Reply)
    assert reply.body == body.replace(echo.encode(), b"***")


@pytest.mark.parametrize(("path", "unversioned"), [("", False), ("/openai", True)])
async def test_a_refusal_says_whether_the_address_names_a_version(
    path: str, *, unversioned: bool
) -> None:
    """The judge hints at a forgotten /v1."""
    async with server(answering(response("404 Not Found", b"{}"))) as url:
        base_url = url.removesuffix("/v1") + path if path else url
        async with client(base_url) as llm:
            reply = await llm.complete(call())

    assert isinstance(reply, Reply)
    assert reply.unversioned is unversioned


async def test_a_completion_is_kept_as_it_came() -> None:
    """A paid answer is not changed, whatever it contains."""
    body = b'{"choices":[{"message":{"content":"my-own-key"}}]}'

    reply = await ended(answering(response("200 OK", body)), api_key=Secret("my-own-key"))

    assert isinstance(reply, Reply)
    assert reply.body == body


async def test_informational_replies_for_ever_end_at_the_limit() -> None:
    """The call's own limit must end it.

    The HTTP client reads on after each 1xx and reports none of them.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 10)
            await writer.drain()
            await asyncio.sleep(0.001)

    async with asyncio.timeout(30):
        failed = await ended(serve, timeout_s=1.0)

    assert isinstance(failed, CallFailed)
    assert failed.error_class == "AMBIGUOUS"
