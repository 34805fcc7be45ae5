"""The HTTP server for watchers: exact paths, a token where others may reach it, no leaks."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse

import pytest

from docllm.producer.metrics import http_server
from docllm.producer.metrics.http_server import HttpAnswer, HttpPage, HttpServer
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.address import Address
from docllm.schemas.settings.config import Secret

ANY_PORT = Address("127.0.0.1", 0)
TOKEN = "s3cret"  # noqa: S105 - of this test


def fails() -> HttpAnswer:
    raise ValueError("secret of the ledger")


PAGES = {
    "/metrics": HttpPage(lambda: HttpAnswer(b"up 1\n")),
    "/livez": HttpPage(lambda: HttpAnswer(b"ok\n"), is_public=True),
    "/broken": HttpPage(fails, is_public=True),
}


@contextmanager
def served(
    pages: dict[str, HttpPage] = PAGES, token: Secret | None = None
) -> Iterator[Callable[..., HTTPResponse]]:
    """Serve pages; yield a function that asks for one."""
    server = HttpServer(address=ANY_PORT, pages=pages, token=token)

    def ask(path: str, method: str = "GET", **headers: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request(method, path, headers=headers)
        return connection.getresponse()

    with closing(server):
        yield ask


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", 200),
        ("/metrics?x=/livez", 200),
        ("/metrics/", 404),
        ("/", 404),
        ("/metrics/../livez", 404),
    ],
)
def test_paths_are_exact(path: str, status: int) -> None:
    """A path that merely contains the name of a page is none."""
    with served() as ask:
        assert ask(path).status == status


def test_the_token_is_needed_for_all_but_health() -> None:
    """Health is open on any address, because a cluster asks without a token."""
    with served(token=Secret(TOKEN)) as ask:
        assert ask("/livez").status == 200
        assert ask("/metrics").status == 401
        assert ask("/metrics", Authorization=f"Bearer {TOKEN}x").status == 401
        assert ask("/metrics", Authorization=f"bearer{TOKEN}").status == 401
        answer = ask("/metrics", Authorization=f"Bearer {TOKEN}")
        assert (answer.status, answer.read()) == (200, b"up 1\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:9464", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("[::1]:9464", 200),
        ("rebind.evil.example", 421),
        ("rebind.evil.example:9464", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("10.0.0.7:9464", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_a_page_of_a_stranger_in_a_browser_reads_nothing(host: str, status: int) -> None:
    """Its name may lead to this machine; health stays open, and a token is better proof."""
    with served() as ask:
        assert ask("/metrics", Host=host).status == status
        assert ask("/livez", Host=host).status == 200
    with served(token=Secret(TOKEN)) as ask:
        assert ask("/metrics", Host=host, Authorization=f"Bearer {TOKEN}").status == 200


def test_a_client_that_names_no_host_is_no_browser() -> None:
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    with closing(server), socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")

        assert connection.makefile("rb").readline().split()[1] == b"200"


def test_an_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """An error may hold what only the operator may see."""
    with served() as ask:
        answer = ask("/broken")
        assert (answer.status, answer.read()) == (500, b"the page cannot be made\n")
        assert ask("/livez").status == 200
    assert "secret of the ledger" in caplog.text


def test_it_only_reads() -> None:
    """HEAD has no body, and nothing can be written."""
    with served() as ask:
        assert ask("/metrics", method="HEAD").read() == b""
        assert ask("/metrics", method="POST").status == 501
        assert "docllm" in str(ask("/metrics").headers["Server"])
        assert "Python" not in str(ask("/metrics").headers["Server"])


def test_silent_clients_do_not_keep_the_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects and says nothing is dropped after a while."""
    monkeypatch.setattr(http_server, "MAX_REQUESTS", 2)
    monkeypatch.setattr(http_server._RequestHandler, "timeout", 0.2)
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    with closing(server):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        for one in silent:
            one.close()


def test_a_new_request_takes_the_place_of_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only connects must not make a cluster start a program again that is well."""
    monkeypatch.setattr(http_server, "MAX_REQUESTS", 2)
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    with closing(server):
        assert [livez(server.port) for _ in range(3)] == [200] * 3
        for one in silent:
            one.close()


def test_slow_clients_keep_neither_the_place_of_others_nor_the_server_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that sends a letter now and then is never silent; it is dropped all the same."""
    monkeypatch.setattr(http_server, "MAX_REQUESTS", 2)
    monkeypatch.setattr(http_server, "WHOLE_S", 2.0)
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.1):
            for one in slow:
                with suppress(OSError):
                    one.send(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        slow[-1].settimeout(30)
        with suppress(ConnectionResetError):
            assert slow[-1].recv(1) == b""
        answers = (livez(server.port) for _ in range(100) if not ended.wait(0.2))
        assert next(answer for answer in answers if answer is not None) == 200
        closing_server = threading.Thread(target=server.close, daemon=True)
        closing_server.start()
        closing_server.join(60)
        assert not closing_server.is_alive()
    finally:
        ended.set()
        dripping.join()
        for one in slow:
            one.close()


def livez(port: int) -> int | None:
    """Return the status of /livez, None if the connection was closed without an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def test_a_thread_that_cannot_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be short of threads for a while; the server answers again afterwards."""
    monkeypatch.setattr(http_server, "MAX_REQUESTS", 1)
    start, fail = threading.Thread.start, [True, True, True]

    def started(thread: threading.Thread) -> None:
        if fail and thread.name != "http":
            fail.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    with served() as ask:
        for _ in range(3):
            with pytest.raises((ConnectionError, HTTPException)):
                ask("/livez")
        assert ask("/livez").status == 200


def test_an_open_address_without_a_token_is_refused() -> None:
    """The error says what to set."""
    with pytest.raises(ConfigError, match="DOCLLM_HTTP_TOKEN"):
        HttpServer(address=Address("0.0.0.0", 0), pages=PAGES, token=None)  # noqa: S104


def test_an_address_in_use_is_a_clear_error() -> None:
    """The error names the address."""
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    with closing(server), pytest.raises(ConfigError, match=f"127.0.0.1:{server.port} cannot"):
        HttpServer(address=Address("127.0.0.1", server.port), pages=PAGES, token=None)


def test_a_closed_server_frees_its_address() -> None:
    """A program that starts again at once can listen on the same address."""
    server = HttpServer(address=ANY_PORT, pages=PAGES, token=None)
    port = server.port
    server.close()
    HttpServer(address=Address("127.0.0.1", port), pages=PAGES, token=None).close()
