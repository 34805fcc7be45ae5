"""Installations for the tests: embedded ones in a folder, and groups on the servers of this run."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.buses import EmbeddedBus, KafkaBus
from tests.integration.deployment import Deployment
from tests.servers import Kafka, MariaDB, Redis

PARTITIONS = "4"


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Deployment]:
    """An installation on the embedded parts, with nothing in it."""
    folder = tmp_path / "embedded"
    data = folder / "docllm-data"
    found = Deployment(
        folder=folder,
        group="docllm",
        bus=EmbeddedBus(data / "bus.sqlite"),
        ledger_url=f"sqlite:///file:{data}/ledger.sqlite?mode=ro&uri=true",
        settings={},
        kafka=False,
    )
    yield found
    found.close()


@pytest.fixture
def on_kafka(tmp_path: Path, kafka_server: Kafka, mariadb_server: MariaDB, redis_server: Redis) -> Iterator[Deployment]:
    """A group of its own on Kafka, with an empty ledger of its own, migrated, its topics made."""
    name = f"g{secrets.token_hex(4)}"
    url = mariadb_server.create_database(name)
    settings = {"DOCLLM_KAFKA_BOOTSTRAP": kafka_server.bootstrap, "DOCLLM_DATABASE_URL": url, "DOCLLM_REDIS_URL": redis_server.url}
    found = Deployment(
        folder=tmp_path / "kafka",
        group=name,
        bus=KafkaBus(kafka_server.bootstrap),
        ledger_url=url.replace("mysql://", "mysql+pymysql://"),
        settings=settings,
        kafka=True,
    )
    found.producer("migrate")
    found.producer("topics", "apply", "--partitions", PARTITIONS, "--replication-factor", "1")
    yield found
    found.close()


@pytest.fixture(params=["embedded", "kafka"])
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """An installation of each kind."""
    found: Deployment = request.getfixturevalue("embedded" if request.param == "embedded" else "on_kafka")
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[Deployment, str], None]:
    """Return a function that writes an installation's docllm.toml."""

    def write(deployment: Deployment, text: str) -> None:
        (deployment.folder / "docllm.toml").write_text(text)

    return write
