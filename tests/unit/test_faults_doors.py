"""What a door does to those who go through it, and that it counts whom it met."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.doors import Door, Mode, Wrong
from tests.faults.proxy import Proxy
from tests.integration.programs import until
from tests.servers.process import free_port

LATEST_S = 30.0  # for what comes, on a machine however busy
SILENCE_S = 0.3  # for what must not come


@pytest.fixture
def door() -> Iterator[tuple[Proxy, Door]]:
    """A door to a server that says again what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as server, Proxy() as proxy:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield proxy, proxy.open("a:b", free_port(), server.getsockname()[1])


def _serve(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            threading.Thread(target=_echo, args=(server.accept()[0],), daemon=True).start()


def _echo(client: socket.socket) -> None:
    with client, suppress(OSError):
        while heard := client.recv(65536):
            client.sendall(heard)


def connected(door: Door) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", door.port))
    client.settimeout(LATEST_S)
    return client


def said(client: socket.socket, text: bytes) -> bytes:
    """Return what comes back."""
    client.sendall(text)
    return client.recv(1000)


def swallowed(door: Door, client: socket.socket, text: bytes) -> None:
    """Say it into a hole: the door has it, and nothing comes back."""
    before = door.counts.held
    client.sendall(text)
    until(lambda: door.counts.held == before + len(text), "the door to hold what was said", LATEST_S)
    client.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        client.recv(1000)
    client.settimeout(LATEST_S)


def test_an_open_door_carries(door: tuple[Proxy, Door]) -> None:
    """What is said comes back, and is counted."""
    with connected(door[1]) as client:
        assert said(client, b"hello") == b"hello"

    assert door[0].counts(door[1]) == {"connections": 1, "carried": 10}


def test_a_cut_ends_those_who_are_there_and_those_who_come(door: tuple[Proxy, Door]) -> None:
    """Both are reset; when it is over, all is well."""
    proxy, one = door
    with connected(one) as client:
        said(client, b"hello")
        proxy.set(one, Wrong(Mode.CUT))

        with pytest.raises(ConnectionResetError):
            client.recv(10)
        with connected(one) as late, pytest.raises(ConnectionResetError):
            late.recv(10)

    told = proxy.set(one, Wrong()).told()
    assert (told["cut"], told["refused"]) == (1, 1)
    with connected(one) as again:
        assert said(again, b"again") == b"again"


def test_a_hole_swallows_and_tells_nobody(door: tuple[Proxy, Door]) -> None:
    """The connection stays, nothing comes; when it is over, everything does."""
    proxy, one = door
    with connected(one) as client:
        said(client, b"hello")
        proxy.set(one, Wrong(Mode.HOLE))
        swallowed(one, client, b"late")

        assert proxy.set(one, Wrong()).held == 4
        assert client.recv(10) == b"late"


def test_last_words_into_a_hole_are_lost(door: tuple[Proxy, Door]) -> None:
    """Who has given up is not heard later: a server must not take an old question for a new one."""
    proxy, one = door
    proxy.set(one, Wrong(Mode.HOLE))
    with connected(one) as client:
        swallowed(one, client, b"old")

    until(lambda: any(pair.left for pair in one.pairs), "the door to notice", LATEST_S)
    assert proxy.set(one, Wrong()).held == 3
    assert proxy.counts(one) == {"cut": 1}


def test_after_a_hole_connections_may_be_lost(door: tuple[Proxy, Door]) -> None:
    """As when a router has forgotten them: a reset, and what was held never comes."""
    proxy, one = door
    with connected(one) as client:
        said(client, b"hello")
        proxy.set(one, Wrong(Mode.HOLE))
        swallowed(one, client, b"lost")
        proxy.set(one, Wrong(), reset=True)

        with pytest.raises(ConnectionResetError):
            client.recv(10)


def test_a_slow_way_brings_everything_in_order(door: tuple[Proxy, Door]) -> None:
    """Late, and no faster than it may be."""
    proxy, one = door
    proxy.set(one, Wrong(Mode.SLOW, delay_s=0.02, bytes_per_s=10_000))
    with connected(one) as client:
        assert b"".join(said(client, word) for word in (b"one ", b"two ", b"three")) == b"one two three"

    assert proxy.counts(one)["delayed"] == 26


def test_a_torn_message_is_half_a_message(door: tuple[Proxy, Door]) -> None:
    """The first and its answer arrive; of the second one half does, and then the connection is reset."""
    proxy, one = door
    proxy.set(one, Wrong(Mode.TEAR, tear_every=3))
    with connected(one) as client:
        assert said(client, b"whole") == b"whole"
        with pytest.raises(ConnectionResetError):
            said(client, b"broken")

    assert proxy.counts(one)["torn"] == 1


def test_connections_that_carry_little_are_torn_too(door: tuple[Proxy, Door]) -> None:
    """What all of them carry is counted together; a run was void of a client that opens many."""
    proxy, one = door
    proxy.set(one, Wrong(Mode.TEAR, tear_every=5))
    for _ in range(2):
        with connected(one) as client:
            assert said(client, b"whole") == b"whole"

    with connected(one) as client, pytest.raises(ConnectionResetError):
        said(client, b"broken")


def test_a_server_that_is_gone_is_counted(door: tuple[Proxy, Door]) -> None:
    """A door stays open when nobody is behind it; who comes is sent away."""
    proxy = door[0]
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))  # nobody else takes the port, and nobody listens
        nowhere = proxy.open("a:c", free_port(), gone.getsockname()[1])

        with connected(nowhere) as client, pytest.raises(ConnectionResetError):
            client.recv(10)

    assert proxy.counts(nowhere) == {"connections": 1, "failed": 1}


def test_what_a_door_did_is_remembered_when_its_mode_is_set() -> None:
    """Another fault may set it while one counts what a frozen server is sent."""
    door = Door("agent1:kafka", 1, 2)
    door.counts.carried, door.counts.connections = 5, 1
    door.set(Wrong())
    door.counts.carried = 2

    assert door.ever() == {"carried": 7, "connections": 1}
