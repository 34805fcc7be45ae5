"""Documents by `https://`: what is fetched, what is refused, and how failures are told apart."""

import asyncio
import gzip
import ssl
from ipaddress import ip_network

import pytest

from docllm.agent.handlers.documents import Expected
from tests.contract.support.document_servers import (
    CLOSED,
    HOST,
    OPEN,
    OTHER,
    answers,
    document_server,
    forbidden,
    refusal,
    reply,
    web,
)

ANY = Expected()


async def _by_host(host: str, _port: int) -> list[str]:
    """Resolve the test's own hosts to the open address, and others as the system does."""
    return [CLOSED] if host == "localhost" else [OPEN]


async def test_a_document_below_an_allowed_prefix(
    certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is fetched by the name of its host, at the address that was checked.

    No name server knows the host, so the connection can only go to the checked address. Proxies of
    the environment are not used, and nothing that is a secret is sent.
    """
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    cookie = "Set-Cookie: a=b"
    async with document_server(certificate, lambda _: reply(b"text", cookie)) as server:
        reader = web([server.uri("/docs/")])

        for _ in range(2):
            assert (
                await reader.fetch(server.uri("/docs/%C3%A4.txt?v=1"), Expected(size=4)) == b"text"
            )

    for head in server.requests:
        lines = head.lower().splitlines()
        assert lines[0] == "get /docs/%c3%a4.txt?v=1 http/1.1"
        names = {line.partition(":")[0] for line in lines[1:] if line}
        assert names == {"host", "accept", "accept-encoding", "user-agent"}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("allow", "uri", "words"),
    [
        ([], "/a", "documents.allow (DOCLLM_DOCUMENT_ALLOW) is empty"),
        (["/docs/"], "/a", "is not below a prefix of documents.allow"),
        (["/docs/"], "/docs/../a", "is not below a prefix"),
        (["/docs/"], "/docs/%2e%2e/a", "is not below a prefix"),
        (["/docs/"], "/docs-2/a", "is not below a prefix"),
        (["/docs/"], "/docs/..%2fa", "is not below a prefix"),
        (["/docs/"], "/docs/a#part", "is not below a prefix"),
    ],
)
async def test_nothing_else_is_fetched(
    certificate: ssl.SSLContext, allow: list[str], uri: str, words: str
) -> None:
    """A URI below no allowed prefix is refused, and nothing is asked; by default that is any."""
    async with document_server(certificate, lambda _: reply()) as server:
        error_class, text = await refusal(
            web([server.uri(path) for path in allow]), server.uri(uri)
        )

    assert (error_class, server.requests) == ("DOCUMENT_REFUSED", [])
    assert words in text


async def test_http_is_refused(certificate: ssl.SSLContext) -> None:
    """A document without encryption is refused with the way to name it."""
    error_class, text = await refusal(web([f"https://{HOST}/"]), f"http://{HOST}/a")

    assert error_class == "DOCUMENT_REFUSED"
    assert "use https://" in text


@pytest.mark.parametrize(
    "addresses", [[CLOSED], [OPEN, CLOSED], [OPEN, "::1"], [OPEN, "fe80::1%1"], []]
)
async def test_a_host_with_a_closed_address_is_refused(
    certificate: ssl.SSLContext, addresses: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One closed answer is enough. The error, which others read, names no address."""
    async with document_server(certificate, lambda _: reply()) as server:
        reader = web([server.uri("/")], answers(addresses))
        error_class, text = await refusal(reader, server.uri())
        await refusal(reader, server.uri())

    assert (error_class, server.requests) == ("DOCUMENT_REFUSED", [])
    assert "documents.private (DOCLLM_DOCUMENT_PRIVATE)" in text
    assert not any(address in text for address in addresses)
    assert len(caplog.messages) == 1


async def test_a_name_that_is_bound_again_reaches_nothing(certificate: ssl.SSLContext) -> None:
    """A resolver that gives an open address first, then a closed one, reaches nothing.

    Each fetch asks once and connects to what it checked; a later answer is checked like the first.
    """
    async with (
        document_server(certificate, lambda _: reply()) as server,
        forbidden(server.port) as listener,
    ):
        reader = web([server.uri("/")], answers([OPEN], [CLOSED], [OPEN], [CLOSED]))

        assert await reader.fetch(server.uri(), ANY) == b"text"
        assert (await refusal(reader, server.uri()))[0] == "DOCUMENT_REFUSED"
        assert await reader.fetch(server.uri(), ANY) == b"text"

    assert listener.hits == 0


async def test_the_next_address_is_tried(certificate: ssl.SSLContext) -> None:
    """A host with several addresses is reached by the first that accepts a connection."""
    async with document_server(certificate, lambda _: reply()) as server:
        reader = web(
            [server.uri("/")], answers(["127.0.0.3", OPEN]), private=[ip_network("127.0.0.2/31")]
        )

        assert await reader.fetch(server.uri(), ANY) == b"text"


async def test_a_redirect_is_a_new_uri(certificate: ssl.SSLContext) -> None:
    """A redirect below an allowed prefix is followed, also to another host."""

    def answer(head: str) -> bytes:
        if head.startswith("GET /a "):
            return reply(b"", "Location: b", status="302 Found")
        if head.startswith("GET /b "):
            where = f"https://{OTHER}:{server.port}/c"
            return reply(b"", f"Location: {where}", status="308 Permanent Redirect")
        return reply(b"moved")

    async with document_server(certificate, answer) as server:
        reader = web([server.uri("/"), server.uri("/", OTHER)])

        assert await reader.fetch(server.uri("/a"), ANY) == b"moved"


async def test_a_redirect_leads_nowhere_else(certificate: ssl.SSLContext) -> None:
    """A redirect to what may not be fetched is refused, and to itself it ends."""
    targets = [""]

    def answer(_head: str) -> bytes:
        return reply(b"x", f"Location: {targets[0]}", status="302 Found")

    async with document_server(certificate, answer) as server, forbidden(server.port) as listener:
        reader = web([server.uri("/docs/"), f"https://localhost:{server.port}/"], _by_host)
        port = server.port
        for target in (
            f"https://localhost:{port}/",  # allowed by its name, but the address is closed
            f"https://127.0.0.1:{port}/docs/",
            f"https://2130706433:{port}/docs/",
            f"https://[::1]:{port}/docs/",
            f"http://{HOST}:{port}/docs/",
            f"https://{OTHER}:{port}/docs/",
            f"https://u:p@{HOST}:{port}/docs/",
            f"//127.0.0.1:{port}/docs/",
            f"\\\\127.0.0.1:{port}\\docs\\",
            "../other/a",
            "file:///etc/hostname",
            "gopher://127.0.0.1/",
            "https://[",
        ):
            targets[0] = target
            error_class, text = await refusal(reader, server.uri("/docs/a"))
            assert (target, error_class) == (target, "DOCUMENT_REFUSED")
            assert "redirected to" in text
        targets[0] = "/docs/a"
        server.requests.clear()
        _, text = await refusal(reader, server.uri("/docs/a"))

    assert "redirected more than 5 times" in text
    assert len(server.requests) == 6
    assert listener.hits == 0


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        *[(status, "DOCUMENT_UNREADABLE") for status in (408, 425, 429, 500, 502, 503, 504, 599)],
        *[(status, "DOCUMENT_REFUSED") for status in (204, 206, 304, 400, 401, 403, 404, 410, 451)],
        (302, "DOCUMENT_REFUSED"),  # without a place to go to
    ],
)
async def test_an_answer_without_a_document(
    certificate: ssl.SSLContext, status: int, error_class: str
) -> None:
    """A failure of the server is tried again; an answer that will stay the same is final."""
    async with document_server(certificate, lambda _: reply(b"", status=f"{status} X")) as server:
        found, text = await refusal(web([server.uri("/")]), server.uri("/a?signature=secret"))

    assert found == error_class
    assert text == text.replace("secret", "")
    assert f"its server answers {status}" in text


async def test_a_server_that_is_not_there_may_come_back(certificate: ssl.SSLContext) -> None:
    """A host without an answer, a closed port, a cut body and a wrong certificate are temporary."""

    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError("Name or service not known")

    async with document_server(certificate, lambda _: reply()) as server:
        allow = [server.uri("/"), server.uri("/", "wrong.invalid")]
        assert (await refusal(web(allow, unknown), server.uri()))[0] == "DOCUMENT_UNREADABLE"
        found = await refusal(web(allow), server.uri("/?secret", "wrong.invalid"))
    assert found[0] == "DOCUMENT_UNREADABLE"
    assert "certificate" in found[1]
    assert "secret" not in found[1]
    assert (await refusal(web(allow), server.uri()))[0] == "DOCUMENT_UNREADABLE"

    cut = reply(b"x" * 100, "Connection: close")[:-50]
    async with document_server(certificate, lambda _: cut) as server:
        assert (await refusal(web([server.uri("/")]), server.uri()))[0] == "DOCUMENT_UNREADABLE"


async def test_a_slow_server_is_left(certificate: ssl.SSLContext) -> None:
    """A body that does not end is left after the limit, and the next fetch has its place."""
    slow = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"
    async with document_server(certificate, lambda _: slow) as server:
        reader = web([server.uri("/")], timeout_s=0.3, at_once=1)
        for _ in range(2):
            error_class, text = await refusal(reader, server.uri())

    assert error_class == "DOCUMENT_UNREADABLE"
    assert "did not come within 0.3 s" in text


async def test_a_silent_server_is_left(certificate: ssl.SSLContext) -> None:
    """Whoever stops waiting, the connection to a server without an answer ends too."""
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        ended.set()

    server = await asyncio.start_server(silent, OPEN, 0, ssl=certificate)
    uri = f"https://{HOST}:{server.sockets[0].getsockname()[1]}/a"
    reader = web([uri.removesuffix("a")], timeout_s=0.5)
    assert (await refusal(reader, uri))[0] == "DOCUMENT_UNREADABLE"
    await asyncio.wait_for(ended.wait(), 60)
    ended.clear()
    fetch = asyncio.create_task(reader.fetch(uri, ANY))
    await asyncio.sleep(0.1)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    await asyncio.wait_for(ended.wait(), 60)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "uri",
    [
        "https:{h}/docs/a",
        "https:/{h}/docs/a",
        "https:///{h}/docs/a",
        "https:\\\\{h}\\docs\\a",
        "https://{h}\\docs\\a",
        "HTTPS://{h}/docs/a",
        " https://{h}/docs/a",
        "https://{h}/docs/a\n",
        "https://u@{h}/docs/a",
        "https://{h}/docs/ä",
        "https://{h}/docs/./a",
    ],
)
async def test_a_sloppy_uri_is_refused(certificate: ssl.SSLContext, uri: str) -> None:
    """A URI that programs could read in different ways is refused, though it seems allowed."""
    async with document_server(certificate, lambda _: reply()) as server:
        host = f"{HOST}:{server.port}"
        error_class, text = await refusal(web([server.uri("/docs/")]), uri.format(h=host))

    assert (error_class, server.requests) == ("DOCUMENT_REFUSED", [])
    assert "is not below a prefix" in text


async def test_a_host_that_is_sent_in_another_form_is_refused(certificate: ssl.SSLContext) -> None:
    """A prefix with a number as its host does not allow the address that it stands for."""
    async with document_server(certificate, lambda _: reply(), CLOSED) as server:
        uri = server.uri("/docs/a", "2130706433")
        prefix = server.uri("/docs/", "2130706433")
        _, text = await refusal(web([prefix], private=[ip_network("127.0.0.0/8")]), uri)

    assert "is not below a prefix" in text


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"x" * 1001),
        reply(gzip.compress(b"x" * 10_000_000), "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n",
    ],
    ids=["plain", "compressed", "chunked"],
)
async def test_a_document_that_is_too_large(certificate: ssl.SSLContext, answer: bytes) -> None:
    """A document of too many bytes, counted after decompression, is refused at its limit."""
    async with document_server(certificate, lambda _: answer) as server:
        reader = web([server.uri("/")], max_bytes=1000)
        error_class, text = await refusal(reader, server.uri())

    assert error_class == "DOCUMENT_REFUSED"
    assert "has more than 1000 bytes" in text


async def test_a_document_that_has_changed(certificate: ssl.SSLContext) -> None:
    """A document of another size or ETag than was loaded is not the task's document."""
    async with document_server(certificate, lambda _: reply(b"text", 'ETag: W/"2"')) as server:
        reader = web([server.uri("/")])

        assert await reader.fetch(server.uri(), Expected(size=4, etag='"2"')) == b"text"
        for expected in (Expected(size=3), Expected(size=5), Expected(etag="1")):
            assert (await refusal(reader, server.uri(), expected))[0] == "DOCUMENT_CHANGED"


async def test_a_picture_is_no_document(certificate: ssl.SSLContext) -> None:
    """What the server calls a picture is refused before its body is read."""
    async with document_server(
        certificate, lambda _: reply(b"x", "Content-Type: Image/PNG")
    ) as server:
        error_class, text = await refusal(web([server.uri("/")]), server.uri())

    assert error_class == "DOCUMENT_REFUSED"
    assert "image/png" in text


async def test_few_fetches_run_at_a_time(certificate: ssl.SSLContext) -> None:
    """However many tasks ask, so many documents at most are in memory."""
    running, most = 0, 0

    async def counted(host: str, port: int) -> list[str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return [OPEN]

    async with document_server(certificate, lambda _: reply()) as server:
        reader = web([server.uri("/")], counted, at_once=2)
        await asyncio.gather(*[reader.fetch(server.uri(), ANY) for _ in range(10)])

    assert most == 2
