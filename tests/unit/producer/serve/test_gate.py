"""Who may ask the server, and how much of it one client may take."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from docllm.producer.serve.gate import Bounds, Gate
from docllm.schemas.settings.config import Secret
from tests.support.serving import Client, running, served

TOKEN = "s3cret"  # noqa: S105 - of this test
POST = "/v1/tasks?batch=B"
LINE = b'{"id":"a","prompt":"x"}\n'


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server on a loopback address, without a token."""
    with served(tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with a token and a name."""
    folder = tmp_path_factory.mktemp("token")
    with served(folder, hosts=("docs.example",), DOCLLM_HTTP_TOKEN=TOKEN) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 404),
        ("LocalHost:8484", 404),
        ("127.0.0.1", 404),
        ("[::1]:8484", 404),
        ("rebind.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("10.0.0.7:8484", 421),
        ("docs.example", 421),
        ("", 421),
    ],
)
def test_a_strangers_name_for_this_machine_reads_nothing(
    open_server: Client, host: str, status: int
) -> None:
    """A browser sends the name that a page was asked by, and a name may lead anywhere."""
    assert open_server.get("/v1/batches/none", Host=host).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("docs.example", 404),
        ("Docs.Example:80", 404),
        ("10.0.0.7:8484", 404),
        ("[fd00::7]:8484", 404),
        ("localhost", 404),
        ("evil.example", 421),
        ("", 421),
    ],
)
def test_a_server_has_the_names_that_it_was_given(
    token_server: Client, host: str, status: int
) -> None:
    """With a token, an address in numbers is a name too; a token alone opens no other name."""
    answer = token_server.get("/v1/batches/none", Host=host, Authorization=f"Bearer {TOKEN}")

    assert answer.status == status


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Origin", "http://127.0.0.1:{port}", 404),
        ("Origin", "http://evil.example", 403),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Origin", "null", 403),
        ("Origin", "http://[", 403),
        ("Sec-Fetch-Site", "same-origin", 404),
        ("Sec-Fetch-Site", "none", 404),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
    ],
)
def test_a_page_of_another_site_asks_nothing(
    open_server: Client, name: str, value: str, status: int
) -> None:
    """Its script may send requests to this machine; nothing of them is served."""
    headers = {name: value.format(port=open_server.port)}

    assert open_server.get("/v1/batches/none", **headers).status == status
    if status == 403:
        assert open_server.ask("POST", POST, LINE, **headers).status == 403
        assert open_server.get("/v1/batches/B").status == 404


@pytest.mark.parametrize("path", ["/v1/batches/B", "/v1/tasks/B/a", "/nothing", "/openai/v1/files"])
@pytest.mark.parametrize("sent", ["", "Bearer s3cre", "Bearer s3cretx", "bearer s3cret", "s3cret"])
def test_every_path_needs_the_token(token_server: Client, path: str, sent: str) -> None:
    """Nobody learns what is here without it, not even which paths there are."""
    answer = token_server.get(path, Authorization=sent)

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json["error"]["code"] == "invalid_api_key"
    assert TOKEN not in answer.body.decode()


def test_health_is_open(token_server: Client) -> None:
    """A cluster asks without a token, by the address of the machine."""
    assert token_server.get("/livez").body == b"ok\n"


@pytest.mark.parametrize("head", ["x" * 20_000, "x" * 500_000])
def test_a_huge_head_is_refused(open_server: Client, head: str) -> None:
    """Its headers fill no memory."""
    with socket.create_connection(("127.0.0.1", open_server.port), 30) as connection:
        try:
            connection.sendall(
                f"GET /livez HTTP/1.1\r\nHost: localhost\r\nA: {head}\r\n\r\n".encode()
            )
            status = connection.recv(100).split()[1:2]
        except ConnectionError:
            status = []

    assert status in ([b"400"], [b"431"], [])
    assert open_server.get("/livez").status == 200


def test_a_packed_body_is_not_unpacked(open_server: Client) -> None:
    """A small one could unpack to more than any disk has."""
    answer = open_server.post(POST, LINE, Content_Encoding="gzip")

    assert answer.status == 415
    assert open_server.get("/v1/batches/B").status == 404


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_leaves_nothing(tmp_path: Path, *, chunked: bool) -> None:
    """It is refused by its length, or else as soon as it is too long."""
    body = LINE * 50

    with served(tmp_path, bounds=Bounds(body_bytes=len(body) - 1)) as client:
        answer = client.ask("POST", POST, iter([body[:100], body[100:]]) if chunked else body)
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert client.get("/v1/batches/B").status == 404


def test_a_body_that_stands_still_is_given_up(tmp_path: Path) -> None:
    """What came of it is not used."""
    with (
        served(tmp_path, bounds=Bounds(silent_s=0.05)) as client,
        socket.create_connection(("127.0.0.1", client.port), 30) as connection,
    ):
        head = f"POST {POST} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + LINE)
        assert connection.makefile("rb").readline().split()[1] == b"408"
        assert client.get("/v1/batches/B").status == 404


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTT", b"GET /livez HTTP/1.1\r\nA: b\r\n"])
def test_a_connection_that_does_not_ask_is_closed(tmp_path: Path, sent: bytes) -> None:
    """Half a request keeps no place."""
    with (
        served(tmp_path, bounds=Bounds(request_s=0.05)) as client,
        socket.create_connection(("127.0.0.1", client.port), 30) as connection,
    ):
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_a_reader_that_takes_nothing_is_given_up() -> None:
    """Its connection ends, and so does the work for it."""
    ended = threading.Event()

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                part = {"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True}
                await send(part)
                await asyncio.sleep(0)
        finally:
            ended.set()

    @asynccontextmanager
    async def make() -> AsyncIterator[Gate]:
        yield Gate(endless, hosts=(), token=None, bounds=Bounds(silent_s=0.05))

    with (
        running(make) as client,
        socket.create_connection(("127.0.0.1", client.port), 30) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(30)


def test_a_token_is_a_secret(tmp_path: Path) -> None:
    """The gate shows it nowhere."""
    gate = Gate(_nothing, hosts=(), token=Secret(TOKEN), bounds=Bounds())

    assert TOKEN not in repr(vars(gate))


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass
