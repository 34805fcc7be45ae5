"""Runs the suites on each kind of parts, and async tests on an event loop of their own."""

import asyncio
import inspect
from pathlib import Path

import pytest

from tests.contract.support import embedded_parts, simulated_parts
from tests.contract.support.document_servers import certificate, site  # noqa: F401 - their fixtures
from tests.contract.support.parts import Parts
from tests.support.ledger_database import ledger_db, migrated  # noqa: F401 - the ledger's fixtures


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
