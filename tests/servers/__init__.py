"""Real servers for tests and demos, as child processes on loopback with throw-away data.

They are Apache Kafka, MariaDB, MySQL, Redis and an S3 server. Nothing of the product may import
this package. `python -m tests.servers` installs and starts them by hand.
"""

import os

from tests.servers.database import DatabaseServer
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.servers.object_store import ObjectStore
from tests.servers.process import Server, ServerFailedError, ServerMissingError
from tests.servers.redis import Redis

__all__ = [
    "DatabaseServer",
    "Kafka",
    "MariaDB",
    "MySQL",
    "ObjectStore",
    "Redis",
    "Server",
    "ServerFailedError",
    "ServerMissingError",
    "database_server",
]


def database_server() -> type[DatabaseServer]:
    """Return the server of whole programs: DOCLLM_TEST_DATABASE names `mariadb` or `mysql`."""
    name = os.environ.get("DOCLLM_TEST_DATABASE") or MariaDB.name
    return {server.name: server for server in (MariaDB, MySQL)}[name]
