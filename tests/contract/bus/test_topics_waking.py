"""A broker that stood still knows of no broker for a moment, itself included.

Its answer must end no client.
"""

import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

METADATA, API_VERSIONS = 3, 18
UNSUPPORTED, UNKNOWN_TOPIC = 35, 3
VERSIONS = {METADATA: 4, API_VERSIONS: 0}

ASK = """
import asyncio, sys
from docllm.producer.bus.kafka.admin import KafkaTopicAdmin
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig

async def ask():
    config = KafkaConfig(bootstrap=f"127.0.0.1:{sys.argv[1]}")
    admin = KafkaTopicAdmin(config=config, clock=SystemClock())
    print(await admin.cluster_id())

asyncio.run(ask())
"""


class Broker(socketserver.ThreadingTCPServer):
    """A broker's server. `known`: whether it still knows of itself.

    `drops` is how many questions it answers by closing the connection. `pauses_s` are the pauses
    before its first answers.
    """

    daemon_threads = True
    known = True
    drops = 0
    pauses_s: Sequence[float] = ()

    def pause(self) -> None:
        first, *self.pauses_s = self.pauses_s or (0,)
        time.sleep(first)


class Waking(socketserver.StreamRequestHandler):
    """Answers two questions of Kafka's protocol: its versions, and its brokers and topics."""

    server: Broker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", size))
            kind, version, correlation, name = struct.unpack(">hhih", request[:10])
            body = request[10 + max(name, 0) :]
            if kind == METADATA and self.server.drops > 0:
                self.server.drops -= 1
                return
            if kind == METADATA:
                self.server.pause()
            answer = struct.pack(">i", correlation) + (
                self.metadata(body) if kind == METADATA else versions(version)
            )
            self.wfile.write(struct.pack(">i", len(answer)) + answer)

    def metadata(self, body: bytes) -> bytes:
        """Return the broker, once, then none, with the cluster's id.

        The requested topics are returned as unknown.
        """
        port = struct.pack(">i", self.server.server_address[1])
        me = struct.pack(">i", 1) + text(b"127.0.0.1") + port + text(None)
        known, self.server.known = self.server.known, False
        brokers = struct.pack(">i", known) + known * me
        return (
            struct.pack(">i", 0)
            + brokers
            + text(b"waker")
            + struct.pack(">i", 1 if known else -1)
            + topics(body)
        )


def versions(asked: int) -> bytes:
    spoken = b"".join(struct.pack(">hhh", kind, 0, version) for kind, version in VERSIONS.items())
    return struct.pack(">hi", UNSUPPORTED if asked else 0, len(VERSIONS)) + spoken


def topics(body: bytes) -> bytes:
    count = max(struct.unpack(">i", body[:4])[0], 0)
    answer, rest = struct.pack(">i", count), body[4:]
    for _ in range(count):
        size = 2 + struct.unpack(">h", rest[:2])[0]
        answer += struct.pack(">h", UNKNOWN_TOPIC) + rest[:size] + struct.pack(">bi", 0, 0)
        rest = rest[size:]
    return answer


def text(value: bytes | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(("127.0.0.1", 0), Waking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("drops", "pauses_s"),
    [
        pytest.param(0, (), id="prompt"),
        pytest.param(2, (), id="drops-two"),
        # The handle forgets the broker while its question waits there, and answers no more.
        pytest.param(0, (0, 0, 0.6), id="third-answer-late"),
    ],
)
def test_a_cluster_that_knows_no_broker_yet_has_an_id(
    broker: Broker, drops: int, pauses_s: Sequence[float]
) -> None:
    """The admin client's question for the id once ended a reaper with SIGABRT.

    That was half a second after Kafka had stood still. A question that was lost with its connection
    is asked again, by a new handle.
    """
    broker.drops = drops
    broker.pauses_s = pauses_s
    port = broker.server_address[1]
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "waker\n"), done.stderr
