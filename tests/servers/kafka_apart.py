"""A broker with its controller in another process, which can take the broker for lost.

This happens to a broker after a long pause, or after a cut of its link to the controller.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.kafka import Kafka
from tests.servers.process import free_port, listens

CONTROLLER_ID = 100
SESSION_S = 9.0  # a broker without a heartbeat for this long is fenced
# The key of BrokerHeartbeat in Kafka's protocol; a request begins with its length and its key.
HEARTBEAT = 63


class Controller(Kafka):
    """A controller alone; `port` is its listener."""

    def ready(self) -> bool:
        """Return whether it accepts connections."""
        return listens(self.port)

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{self.port}",
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
        }


class Broker(Kafka):
    """A broker alone, which talks to its controller through a proxy."""

    def __init__(self, *, folder: Path, controller: Controller) -> None:
        super().__init__(folder=folder, cluster_id=controller.cluster_id)
        self._heartbeats = Heartbeats(free_port(), controller.port)

    def fence(self) -> None:
        """Make the controller take the broker for lost for a second.

        The broker learns of it, and answers all clients.
        """
        self._heartbeats.pass_on.clear()
        time.sleep(SESSION_S + 1)
        self._heartbeats.pass_on.set()

    def close(self) -> None:
        """Kill the broker and end its proxy.

        A broker that is stopped in order would wait for its controller.
        """
        self.kill()
        self._heartbeats.close()

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {
            "process.roles": "broker",
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{self._heartbeats.port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }


class Heartbeats:
    """A proxy to a controller that holds a broker's heartbeats until `pass_on` is set."""

    def __init__(self, port: int, controller_port: int) -> None:
        self.port = port
        self.pass_on = threading.Event()
        self.pass_on.set()
        self._controller_port = controller_port
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, name="heartbeats", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; the present ones end with their broker."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                self._pair(self._listener.accept()[0])

    def _pair(self, broker: socket.socket) -> None:
        try:
            controller = socket.create_connection(("127.0.0.1", self._controller_port))
        except OSError:
            broker.close()
        else:
            for passes_on, ends in (
                (self._requests, (broker, controller)),
                (self._answers, (controller, broker)),
            ):
                threading.Thread(target=passes_on, args=ends, daemon=True).start()

    def _requests(self, broker: socket.socket, controller: socket.socket) -> None:
        with _ending(broker, controller), broker.makefile("rb") as requests:
            while length := requests.read(4):
                request = requests.read(struct.unpack(">i", length)[0])
                if struct.unpack_from(">h", request)[0] == HEARTBEAT:
                    self.pass_on.wait()
                controller.sendall(length + request)

    def _answers(self, controller: socket.socket, broker: socket.socket) -> None:
        with _ending(controller, broker):
            while chunk := controller.recv(1 << 16):
                broker.sendall(chunk)


@contextmanager
def _ending(near: socket.socket, other: socket.socket) -> Iterator[None]:
    """End both connections when one has ended in any way.

    Each thread closes the connection that it reads.
    """
    with near, suppress(OSError, struct.error):
        yield
    with suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)
