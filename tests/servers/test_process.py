"""A server under test stops, freezes and dies on command; shown with Redis, the fastest."""

import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.servers import Redis, Server, ServerFailedError
from tests.servers.process import _states, free_port

ORPHAN = """
import sys, threading
from pathlib import Path
from tests.servers import Redis
server = Redis(folder=Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def client(redis_server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


def test_files_and_port_outlive_a_kill(redis_server: Redis, client: redis.Redis) -> None:
    """Written data is there after SIGKILL and a new start, at the same address."""
    client.set("name", "kept")

    redis_server.kill()
    redis_server.start()

    assert client.get("name") == b"kept"


def test_frozen_server_does_not_answer_and_goes_on(redis_server: Redis) -> None:
    """A frozen server accepts connections and does not answer; thawed, it answers again."""
    redis_server.freeze()
    frozen = redis_server.ready()
    redis_server.thaw()

    assert not frozen
    assert redis_server.ready()


class Busy(Server):
    """A program whose threads run all the time, as those of a database on a busy machine."""

    name = "busy"

    def prepare(self) -> None:
        """Need nothing."""

    def command(self) -> list[str]:
        """Hash in eight threads, without the interpreter's lock."""
        work = (
            "import hashlib, threading\ndef work():\n while True: hashlib.sha256(bytes(1 << 22))\n"
        )
        return [
            sys.executable,
            "-c",
            work + "for _ in range(8): threading.Thread(target=work).start()",
        ]

    def ready(self) -> bool:
        """Return whether all threads run."""
        return len(list(_states(self.pid))) > 8


def test_a_frozen_server_stands_still_when_freeze_returns(tmp_path: Path) -> None:
    """A frozen ledger once answered one more statement, since one thread had not stopped yet."""
    with Busy(folder=tmp_path) as server:
        for _ in range(20):
            server.freeze()
            states = set(_states(server.pid))
            server.thaw()

            assert states == {"T"}


def test_stopped_server_has_no_process(tmp_path: Path) -> None:
    """A server that does not run cannot be frozen; an error says so."""
    server = Redis(folder=tmp_path)

    with pytest.raises(ServerFailedError, match="redis does not run"):
        server.freeze()


@pytest.mark.usefixtures("redis_server")
def test_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A test run that is killed leaves no server behind."""
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    readable, _, _ = select.select([server], [], [], 10)
    os.close(server)

    assert readable


def test_no_port_is_given_to_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of a test run choose ports at the same time, long before their servers listen."""
    ask = "from tests.servers.process import free_port; print(free_port()); input()"
    with subprocess.Popen(
        [sys.executable, "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        given = int(other.stdout.readline())
        drawn = iter([given, given, *range(20_000, 30_000)])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(drawn))

        assert free_port() != given

        other.communicate(b"\n")
    drawn = iter([given])
    assert free_port() == given
