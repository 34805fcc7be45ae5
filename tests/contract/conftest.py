"""Runs the suites on each kind of parts, and async tests on an event loop of their own.

MariaDB and MySQL share a driver and a dialect. Where neither locks nor plans matter, a test runs on
SQLite and on one of the two, drawn by its name; `make proof` runs it on both.
"""

import asyncio
import inspect
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from tests.contract.support import embedded_parts, simulated_parts
from tests.contract.support.document_servers import certificate, site  # noqa: F401 - their fixtures
from tests.contract.support.parts import Parts
from tests.support.ledger_database import ledger_db, migrated  # noqa: F401 - the ledger's fixtures

SERVERS = ("mariadb", "mysql")
ON_ONE_SERVER = ("batches", "counts", "guards", "records", "replay")


@pytest.hookimpl(tryfirst=True)  # before the choice of tests by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run on the other server, too."""
    alike = defaultdict[str, dict[str, pytest.Item]](dict)
    for item in items:
        kind = next((name for name in SERVERS if name in _parameters(item)), None)
        if kind is not None and item.path.parent.name in ON_ONE_SERVER:
            alike[item.nodeid.replace(kind, "server")][kind] = item
    for name, on_servers in alike.items():
        other = SERVERS[crc32(name.encode()) % 2]
        if len(on_servers) == len(SERVERS):
            on_servers[other].add_marker(pytest.mark.again)


def _parameters(item: pytest.Item) -> list[object]:
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names}
    parts = given.get("parts")
    run = parts.run if isinstance(parts, Parts) else asyncio.run
    run(pyfuncitem.obj(**given))
    return True


@pytest.fixture(params=["simulated", "embedded", "kafka"])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    if request.param == "simulated":
        return simulated_parts.parts()
    if request.param == "embedded":
        return embedded_parts.parts(tmp_path)
    server = request.getfixturevalue("kafka_server")
    from tests.contract.support import kafka_parts  # noqa: PLC0415 - only a run on Kafka needs its client

    return kafka_parts.parts(server.bootstrap)
