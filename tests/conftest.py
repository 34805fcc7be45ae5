"""Servers for the tests that ask for them. A test that names no server starts none."""

import os
import signal
from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.servers import Kafka, MariaDB, MySQL, Redis, Server, ServerMissingError

# In this order two workers end at about the same time: what takes minutes begins first, what takes milliseconds fills the end.
LONGEST_FIRST = (
    "tests/integration/test_kill.py",
    "tests/simulation/",
    "tests/integration/",
    "tests/contract/",
    "tests/faults/",
    "tests/",
)

AnyServer = TypeVar("AnyServer", bound=Server)


settings.register_profile("untimed", deadline=None)  # a machine that is busy is no fault
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let signals reach what the tests start: a shell's background job ignores SIGINT, nohup SIGHUP, and each program would inherit it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first."""
    items.sort(
        key=lambda item: next(
            (place for place, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)), 0
        )
    )


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One Apache Kafka for the whole run; a test that stops or freezes it must bring it back."""
    yield from _running(Kafka(folder=tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One MariaDB for the whole run; `create_database` gives a test a database of its own."""
    yield from _running(MariaDB(folder=tmp_path_factory.mktemp("mariadb")))


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQL]:
    """One MySQL for the whole run; `create_database` gives a test a database of its own."""
    yield from _running(MySQL(folder=tmp_path_factory.mktemp("mysql")))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis for the whole run."""
    yield from _running(Redis(folder=tmp_path_factory.mktemp("redis")))


def _running(server: AnyServer) -> Iterator[AnyServer]:
    try:
        server.start()
    except ServerMissingError as error:
        _absent(str(error))
    try:
        yield server
    finally:
        server.close()


def _absent(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
