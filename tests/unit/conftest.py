"""Async tests, a ledger of this version in an SQLite file, and a log as it was."""

import asyncio
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.tables import metadata


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Undo what a program under test sets for the log of its process."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers = handlers


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty ledger."""
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    with database.engine.begin() as connection:
        metadata.create_all(connection)
    yield database
    database.close()
