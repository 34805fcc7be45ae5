"""The rehearsal LLM's HTTP, and the whole program with its signals."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import Request as Get
from urllib.request import urlopen

import pytest

from docllm.agent.llm.client import ChatClient
from docllm.agent.llm.rehearsal.wire import Connection, Ending, Request, ResponsePlan, response
from docllm.agent.ports import Call, CallFailed, Reply

HELLO = b"POST /a HTTP/1.1\r\nContent-Length: 2\r\nX-Name: One\r\n\r\nhi"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class ConnectionHarness:
    """A connection over a fake transport; `plan` answers all its requests."""

    def __init__(self, plan: ResponsePlan) -> None:
        self.requests: list[Request] = []
        self.done: list[tuple[int, bool]] = []
        self.transport = FakeTransport()
        self._plan = replace(
            plan, done=lambda sent_bytes, left: self.done.append((sent_bytes, left))
        )
        self.connection = Connection(plan=self._take, open_connections=set())
        self.connection.connection_made(self.transport)

    def _take(self, request: Request) -> ResponsePlan:
        self.requests.append(request)
        return self._plan


def test_a_request_may_come_in_pieces() -> None:
    """A request in any pieces is read as one, with header names in lower case."""
    harness = ConnectionHarness(ResponsePlan(b"answer"))

    for byte in HELLO:
        harness.connection.data_received(bytes([byte]))

    assert harness.requests == [
        Request("POST", "/a", {"content-length": "2", "x-name": "One"}, b"hi")
    ]
    assert harness.transport.written == b"answer"


def test_requests_that_come_together_are_answered_in_turn() -> None:
    """Two requests in one piece get two answers, in turn."""
    harness = ConnectionHarness(ResponsePlan(b"answer"))

    harness.connection.data_received(HELLO + HELLO)

    assert harness.transport.written == b"answeranswer"
    assert harness.done == [(6, False), (6, False)]


def test_a_cut_answer_is_half_and_a_reset() -> None:
    """A planned cut sends half of the answer and aborts, once."""
    harness = ConnectionHarness(ResponsePlan(b"answer", ending=Ending.CUT))

    harness.connection.data_received(HELLO + HELLO)

    assert (harness.transport.written, harness.transport.ended) == (b"ans", "aborted")
    assert harness.done == [(3, False)]


def test_a_hanging_call_ends_when_its_client_leaves() -> None:
    """A hanging call gets no answer and ends with its connection."""
    harness = ConnectionHarness(ResponsePlan(b"answer", ending=Ending.HANG))

    harness.connection.data_received(HELLO)
    assert harness.done == []
    harness.connection.connection_lost(None)

    assert harness.transport.written == b""
    assert harness.done == [(0, True)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"x" * 70_000, 431),
    ],
)
def test_bytes_that_are_no_request_are_refused(sent: bytes, status: int) -> None:
    """Unreadable bytes are answered with a status, and the connection is closed."""
    harness = ConnectionHarness(ResponsePlan(b"answer"))

    harness.connection.data_received(sent)

    assert harness.transport.written.startswith(b"HTTP/1.1 %d " % status)
    assert (harness.transport.ended, harness.requests) == ("closed", [])


def test_a_response_has_its_length() -> None:
    """A response states its length, whatever its status."""
    assert response(529, b"{}").startswith(b"HTTP/1.1 529 Status\r\n")
    assert response(200, b"{}", {"A": "b"}).endswith(b"\r\nA: b\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the rehearsal LLM as a program with a log; return its base URL."""
    code = "import sys; from docllm.agent.cli.parser import main; sys.exit(main(sys.argv[1:]))"
    options = ["rehearsal-llm", "--latency", "0", "--log", str(tmp_path / "calls.jsonl")]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *options],
        cwd=Path(__file__).parents[4],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    yield child.stdout.readline().strip(), child
    child.kill()
    child.wait()
    child.stdout.close()


def dial(url: str, faults: str) -> None:
    # Our own address.
    with urlopen(Get(url.replace("/v1", "/faults"), faults.encode(), method="POST")) as reply:  # noqa: S310
        assert reply.status == 200


async def _ended(url: str) -> Reply | CallFailed:
    llm = ChatClient(base_url=url, api_key=None)
    try:
        return await llm.complete(Call(b'{"messages":[{"content":"x"}]}', "b/t#1", 0.5))
    finally:
        await llm.close()


def test_the_program(program: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    """Faults changed at run time reach the client; a signal ends the program despite hung calls."""
    url, child = program

    ended = []
    for faults in ("", "503=1", "cut=1", "hang=1", ""):
        dial(url, faults)
        ended.append(asyncio.run(_ended(url)))
    child.send_signal(signal.SIGTERM)

    assert [reply.status if isinstance(reply, Reply) else reply.error_class for reply in ended] == [
        200,
        503,
        "AMBIGUOUS",
        "AMBIGUOUS",
        200,
    ]
    assert child.wait(60) == 0
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines if line["event"] == "end"] == [200, 503, 0, 0, 200]
