"""Apache Kafka as one process, broker and controller together (KRaft).

It runs from its Maven Central jars. The broker settings are defined here once; a test compares
`docker-compose.kafka.yml` with them.
"""

import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.cache import appears, cache
from tests.servers.process import (
    START_S,
    Server,
    ServerMissingError,
    free_port,
    listens,
    program,
)

VERSION = "4.1.1"
# A broker of a test lives for minutes and mostly compiles itself: a simple compiler and collector
# save a quarter of its CPU.
CHEAP = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
POM = Path(__file__).with_name("kafka-pom.xml")
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

# The broker settings that docllm needs; DESIGN and docs give the reasons.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
    "group.initial.rebalance.delay.ms": "0",
    "message.max.bytes": str(5 << 20),
}
# The settings that make one broker on a small machine enough.
SINGLE = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}
# The settings that halve the CPU of an idle broker: its threads wake three times a second, and its
# controller would write an empty record twice a second.
IDLE = {
    "metadata.max.idle.interval.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
}


def libraries() -> Path:
    """Return the folder of the broker's jars, whether it exists or not."""
    return cache() / f"kafka-{VERSION}"


def classes() -> Path:
    """Return the archive of the broker's classes as Java has them in memory."""
    return cache() / f"kafka-{VERSION}.jsa"


def java(main: str, memory: str) -> list[str]:
    """Return the command line of a program among the jars, to which its arguments are added."""
    return [
        program("java", package="default-jre-headless"),
        f"-Xmx{memory}",
        *CHEAP,
        # Another Java, or one with other options, warns of the archive and reads the jars.
        *([f"-XX:SharedArchiveFile={classes()}"] if classes().exists() else []),
        "-Xlog:disable",
        "-Xlog:all=warning:stderr",  # stdout has the records that a consumer prints
        "-XX:+ExitOnOutOfMemoryError",
        "-Dlog4j2.level=WARN",
        "-cp",
        f"{libraries()}/*",
        main,
    ]


def fetch() -> None:
    """Download the broker's jars, and archive its classes.

    Raises ServerMissingError without Maven or when the download fails.
    """
    if not libraries().exists():
        _download()
    if not classes().exists():
        _archive()


def _download() -> None:
    with appears(libraries()) as jars:
        options = [
            f"-Dkafka.version={VERSION}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ]
        command = [program("mvn", package="maven"), "-q", "-B", "-f", str(POM), COPY_JARS, *options]
        try:
            subprocess.run(command, check=True)
        except subprocess.CalledProcessError as error:
            raise ServerMissingError(
                "the jars of Apache Kafka could not be fetched: Maven ended with "
                f"{error.returncode}"
            ) from error


def _archive() -> None:
    """Start a broker and let it leave its classes, so that others start with 40 % less CPU."""
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        broker = _Archiving(folder=Path(folder))
        with broker:
            broker.stop(timeout_s=START_S)
        broker.archive.rename(classes())


class Kafka(Server):
    """A single Kafka node. `bootstrap` is the address that clients connect to."""

    name = "kafka"

    def __init__(self, *, folder: Path, cluster_id: str | None = None) -> None:
        super().__init__(folder=folder)
        self.cluster_id = cluster_id or _new_id()
        self._controller_port = free_port()

    @property
    def bootstrap(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Write the configuration, and format the storage once."""
        if not libraries().exists():
            raise ServerMissingError(
                "the jars of Apache Kafka are not there; run: python -m tests.servers install"
            )
        if (self._data / "meta.properties").exists():
            return
        self._properties.write_text(
            "".join(f"{name}={value}\n" for name, value in self._settings().items())
        )
        self.run(
            [
                *java("kafka.tools.StorageTool", "128m"),
                "format",
                "-t",
                self.cluster_id,
                "-c",
                str(self._properties),
            ]
        )

    def command(self) -> Sequence[str]:
        """Return the broker's command line."""
        return [*java("kafka.Kafka", "512m"), str(self._properties)]

    def ready(self) -> bool:
        """Return whether the broker lists its topics."""
        if not listens(self.port):
            return False
        # Connection errors are printed by librdkafka unless a callback takes them; here they only
        # mean "not yet".
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "error_cb": lambda _: None,
            "log_level": 0,
        }
        admin = AdminClient(settings)
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _settings(self) -> dict[str, str]:
        here = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "log.dirs": str(self._data),
        }
        return here | SETTINGS | SINGLE | IDLE

    def consumed(self, topic: str, count: int) -> list[str]:
        """Return records of a topic, from its beginning, as Kafka's own consumer prints them.

        A line has the headers, the key and the value, with tabs between them.
        """
        shown = [f"--property=print.{part}=true" for part in ("headers", "key")]
        done = subprocess.run(
            [
                *java("org.apache.kafka.tools.consumer.ConsoleConsumer", "128m"),
                f"--bootstrap-server={self.bootstrap}",
                f"--topic={topic}",
                "--from-beginning",
                f"--max-messages={count}",
                "--timeout-ms=60000",
                *shown,
            ],
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.splitlines()


class _Archiving(Kafka):
    """A Kafka node that archives its classes when it ends."""

    @property
    def archive(self) -> Path:
        return self.folder / "classes.jsa"

    def command(self) -> Sequence[str]:
        first, *options = super().command()
        return [first, f"-XX:ArchiveClassesAtExit={self.archive}", *options]


def _new_id() -> str:
    # With a first bit of 0 no id begins with a hyphen, which would look like an option.
    bits = uuid.uuid4().int >> 1
    return urlsafe_b64encode(bits.to_bytes(16, "big")).decode().rstrip("=")
