"""New installations: on the embedded parts, or as a new group on running servers."""

import secrets
from pathlib import Path

from tests.integration.buses import EmbeddedBus, KafkaBus
from tests.integration.deployment import Deployment
from tests.servers import Kafka, MariaDB, Redis

PARTITIONS = "4"


def embedded_in(folder: Path, group: str = "docllm") -> Deployment:
    """Return an empty installation on the embedded parts."""
    data = folder / "docllm-data"
    return Deployment(
        folder=folder,
        group=group,
        bus=EmbeddedBus(data / "bus.sqlite"),
        ledger_url=f"sqlite:///file:{data}/ledger.sqlite?mode=ro&uri=true",
        settings={},
        kafka=False,
    )


def group_on(kafka: Kafka, mariadb: MariaDB, redis: Redis, *, folder: Path) -> Deployment:
    """Return a new group with an empty ledger of its own.

    With `prepare`, its tables and topics are made.
    """
    name = f"g{secrets.token_hex(4)}"
    url = mariadb.create_database(name)
    settings = {
        "DOCLLM_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "DOCLLM_DATABASE_URL": url,
        "DOCLLM_REDIS_URL": redis.url,
    }
    return Deployment(
        folder=folder,
        group=name,
        bus=KafkaBus(kafka.bootstrap),
        ledger_url=url.replace("mysql://", "mysql+pymysql://"),
        settings=settings,
        kafka=True,
    )


def prepare(deployment: Deployment, *, partitions: str = PARTITIONS) -> None:
    """Make the tables and topics of an installation.

    An embedded one would make them itself, with four partitions.
    """
    deployment.producer("migrate")
    deployment.producer("topics", "apply", "--partitions", partitions, "--replication-factor", "1")
