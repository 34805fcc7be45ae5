"""Installations for the tests: embedded ones in a folder, and groups on the test servers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.support.deployment import Deployment
from tests.integration.support.installations import embedded_in, group_on, prepare
from tests.servers import DatabaseServer, Kafka, Redis
from tests.support.ledger_database import ledger_db, migrated  # noqa: F401 - the ledger's fixtures


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Deployment]:
    """An empty installation on the embedded parts."""
    deployment = embedded_in(tmp_path / "embedded")
    yield deployment
    deployment.close()


@pytest.fixture
def on_kafka(
    tmp_path: Path, kafka_server: Kafka, database_server: DatabaseServer, redis_server: Redis
) -> Iterator[Deployment]:
    """A new group on Kafka with an empty, migrated ledger and its topics."""
    deployment = group_on(kafka_server, database_server, redis_server, folder=tmp_path / "kafka")
    prepare(deployment)
    yield deployment
    deployment.close()


@pytest.fixture(params=["embedded", "kafka"])
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """An installation of each kind."""
    deployment: Deployment = request.getfixturevalue(
        "embedded" if request.param == "embedded" else "on_kafka"
    )
    return deployment


@pytest.fixture
def settings(tmp_path: Path) -> Callable[[Deployment, str], None]:
    """Return a function that writes an installation's docllm.toml."""

    def write(deployment: Deployment, text: str) -> None:
        (deployment.folder / "docllm.toml").write_text(text)

    return write
