"""New installations: on the embedded parts, or as a new group on running servers."""

import asyncio
import secrets
from contextlib import closing
from pathlib import Path
from threading import Lock

import pytest

from docllm.producer.app import open_database, opened
from docllm.schemas.ledger import migrations
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config
from tests.integration.support.buses import EmbeddedBus, KafkaBus
from tests.integration.support.deployment import Deployment
from tests.servers import DatabaseServer, Kafka, Redis

PARTITIONS = "4"
# For what neither bus nor database decides: CI sees it on Kafka and MariaDB, `make proof` on the
# embedded parts too.
repeated_on_embedded = pytest.mark.parametrize(
    "deployment", ["kafka", pytest.param("embedded", marks=pytest.mark.again)], indirect=True
)
# A server lets one migration run at a time, and another gives up after some seconds.
_MIGRATING = Lock()


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


def group_on(kafka: Kafka, database: DatabaseServer, redis: Redis, *, folder: Path) -> Deployment:
    """Return a new group with an empty ledger of its own.

    With `prepare`, its tables and topics are made.
    """
    name = f"g{secrets.token_hex(4)}"
    url = database.create_database(name)
    settings = {
        "DOCLLM_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "DOCLLM_DATABASE_URL": url,
        "DOCLLM_REDIS_URL": redis.url,
    }
    return Deployment(
        folder=folder,
        group=name,
        bus=KafkaBus(kafka.bootstrap),
        ledger_url=url,
        settings=settings,
        kafka=True,
    )


def prepare(deployment: Deployment, *, partitions: str = PARTITIONS) -> None:
    """Make the tables and topics of an installation as `migrate` and `topics apply` do.

    They are made in this process, because a program needs CPU to start. An embedded installation
    would make them itself, with four partitions.
    """
    config = load_config(flags={}, environ=deployment.environ, cwd=deployment.folder)
    with _MIGRATING, closing(open_database(config, timeout_s=None)) as database:
        migrations.migrate(database)
    asyncio.run(_apply_topics(config, deployment.group, int(partitions)))


async def _apply_topics(config: Config, group: str, partitions: int) -> None:
    async with opened(config, group, check_topics=False) as parts:
        await parts.family.apply(partitions, replication_factor=1)
