"""The effects of a door (a faulty proxy) on connections, and its counts."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.doors import Door, LinkFault, Mode
from tests.faults.proxy import Proxy
from tests.integration.support.programs import until
from tests.servers.process import free_port

LATEST_S = 30.0  # to wait for data, on a machine however busy
SILENCE_S = 0.3  # to check that no data comes


@pytest.fixture
def door() -> Iterator[tuple[Proxy, Door]]:
    """A door to a server that echoes."""
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
    """Send a text; return the echo."""
    client.sendall(text)
    return client.recv(1000)


def swallowed(door: Door, client: socket.socket, text: bytes) -> None:
    """Send a text into a hole: the door takes it, and nothing comes back."""
    before = door.counts.held
    client.sendall(text)
    until(
        lambda: door.counts.held == before + len(text), "the door to hold what was said", LATEST_S
    )
    client.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        client.recv(1000)
    client.settimeout(LATEST_S)


def test_an_open_door_carries(door: tuple[Proxy, Door]) -> None:
    """An open door carries and counts the bytes."""
    with connected(door[1]) as client:
        assert said(client, b"hello") == b"hello"

    assert door[0].counts(door[1]) == {"connections": 1, "carried": 10}


def test_a_cut_ends_present_and_new_connections(door: tuple[Proxy, Door]) -> None:
    """A cut resets present and new connections; afterwards all is well."""
    proxy, link = door
    with connected(link) as client:
        said(client, b"hello")
        proxy.set(link, LinkFault(Mode.CUT))

        with pytest.raises(ConnectionResetError):
            client.recv(10)
        with connected(link) as late, pytest.raises(ConnectionResetError):
            late.recv(10)

    counts = proxy.set(link, LinkFault()).told()
    assert (counts["cut"], counts["refused"]) == (1, 1)
    with connected(link) as again:
        assert said(again, b"again") == b"again"


def test_a_hole_keeps_the_connection_and_drops_the_bytes_for_now(door: tuple[Proxy, Door]) -> None:
    """In a hole the connection stays and nothing arrives; afterwards everything does."""
    proxy, link = door
    with connected(link) as client:
        said(client, b"hello")
        proxy.set(link, LinkFault(Mode.HOLE))
        swallowed(link, client, b"late")

        assert proxy.set(link, LinkFault()).held == 4
        assert client.recv(10) == b"late"


def test_last_words_into_a_hole_are_lost(door: tuple[Proxy, Door]) -> None:
    """Bytes of a client that gave up in a hole are lost.

    A server must not take an old question for a new one.
    """
    proxy, link = door
    proxy.set(link, LinkFault(Mode.HOLE))
    with connected(link) as client:
        swallowed(link, client, b"old")

    until(lambda: any(pair.left for pair in link.pairs), "the door to notice", LATEST_S)
    assert proxy.set(link, LinkFault()).held == 3
    assert proxy.counts(link) == {"cut": 1}


def test_after_a_hole_connections_may_be_lost(door: tuple[Proxy, Door]) -> None:
    """After a hole, connections may be reset, and held bytes never arrive.

    A router that forgot the connections has the same effect.
    """
    proxy, link = door
    with connected(link) as client:
        said(client, b"hello")
        proxy.set(link, LinkFault(Mode.HOLE))
        swallowed(link, client, b"lost")
        proxy.set(link, LinkFault(), reset=True)

        with pytest.raises(ConnectionResetError):
            client.recv(10)


def test_a_slow_way_brings_everything_in_order(door: tuple[Proxy, Door]) -> None:
    """A slow way carries everything in order, late and at a limited rate."""
    proxy, link = door
    proxy.set(link, LinkFault(Mode.SLOW, delay_s=0.02, bytes_per_s=10_000))
    with connected(link) as client:
        assert (
            b"".join(said(client, word) for word in (b"one ", b"two ", b"three"))
            == b"one two three"
        )

    assert proxy.counts(link)["delayed"] == 26


def test_a_torn_message_is_half_a_message(door: tuple[Proxy, Door]) -> None:
    """A torn message arrives by half: after the first exchange, half the second, then a reset."""
    proxy, link = door
    proxy.set(link, LinkFault(Mode.TEAR, tear_every=3))
    with connected(link) as client:
        assert said(client, b"whole") == b"whole"
        with pytest.raises(ConnectionResetError):
            said(client, b"broken")

    assert proxy.counts(link)["torn"] == 1


def test_connections_that_carry_little_are_torn_too(door: tuple[Proxy, Door]) -> None:
    """The bytes of all connections count together towards a tear.

    A run was void with a client that opens many connections.
    """
    proxy, link = door
    proxy.set(link, LinkFault(Mode.TEAR, tear_every=5))
    for _ in range(2):
        with connected(link) as client:
            assert said(client, b"whole") == b"whole"

    with connected(link) as client, pytest.raises(ConnectionResetError):
        said(client, b"broken")


def test_connections_to_a_missing_server_are_counted(door: tuple[Proxy, Door]) -> None:
    """A door whose server is gone stays open, counts its visitors, and refuses them."""
    proxy = door[0]
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))  # nobody else takes the port, and nobody listens
        nowhere = proxy.open("a:c", free_port(), gone.getsockname()[1])

        with connected(nowhere) as client, pytest.raises(ConnectionResetError):
            client.recv(10)

    assert proxy.counts(nowhere) == {"connections": 1, "failed": 1}


def test_a_doors_counts_survive_a_change_of_its_mode() -> None:
    """A door's counts survive a change of its mode.

    Another fault may set the mode while one counts what is sent to a frozen server.
    """
    door = Door("agent1:kafka", 1, 2)
    door.counts.carried, door.counts.connections = 5, 1
    door.set(LinkFault())
    door.counts.carried = 2

    assert door.ever() == {"carried": 7, "connections": 1}
