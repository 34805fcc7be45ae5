"""Servers for the tests that ask for them. A test that names no server starts none."""

import os
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from itertools import chain
from typing import TypeVar

import pytest
from hypothesis import settings

from docllm.schemas.runtime.collector import resting
from tests import longest, servers
from tests.servers import (
    DatabaseServer,
    Kafka,
    MariaDB,
    MySQL,
    ObjectStore,
    Redis,
    Server,
    ServerMissingError,
)

AnyServer = TypeVar("AnyServer", bound=Server)


# What `make net`, `make crash-points` and `make containers` run.
PROOFS = ("tests/integration/", "tests/simulation/", "tests/faults/test_crash", "tests/containers/")
settings.register_profile("untimed", deadline=None)  # a machine that is busy is no fault
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let signals reach the programs that tests start.

    A background job of a shell ignores SIGINT and a program under nohup ignores SIGHUP; the
    started programs would inherit that.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt from collections what is imported and collected, since all of it stays.

    Else each of a run's collections of old objects would look at millions of them.
    """
    with resting():
        return (yield)


@pytest.hookimpl(trylast=True)  # after the choice of tests by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest tests begin first; refuse a proof where `make net` does not look for it."""
    proofs = (item.nodeid for item in items if item.get_closest_marker("proof"))
    if strays := [name for name in proofs if not name.startswith(PROOFS)]:
        raise pytest.UsageError(f"no command of the Makefile runs the proof {strays[0]}")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    names = longest.dealt([item.nodeid for item in items], longest.listed(), workers)
    place = {name: number for number, name in enumerate(names)}
    items.sort(key=lambda item: place[item.nodeid])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which files take long and are not in the list."""
    took: defaultdict[str, float] = defaultdict(float)
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            took[report.nodeid] += report.duration
    if lines := longest.missing(took.items(), longest.listed()):
        terminalreporter.section("tests/longest.txt lacks")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One Apache Kafka for the whole run; a test that stops or freezes it must bring it back."""
    yield from running(Kafka(folder=tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One MariaDB for the whole run; `create_database` gives a test a database of its own."""
    yield from running(MariaDB(folder=tmp_path_factory.mktemp("mariadb")))


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQL]:
    """One MySQL for the whole run; `create_database` gives a test a database of its own."""
    yield from running(MySQL(folder=tmp_path_factory.mktemp("mysql")))


@pytest.fixture(scope="session")
def database_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """The database of whole programs, one of those above."""
    server: DatabaseServer = request.getfixturevalue(f"{servers.database_server().name}_server")
    return server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis for the whole run."""
    yield from running(Redis(folder=tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One S3 server for the whole run."""
    yield from running(ObjectStore(folder=tmp_path_factory.mktemp("object-store")))


def running(server: AnyServer) -> Iterator[AnyServer]:
    try:
        server.start()
    except ServerMissingError as error:
        absent(str(error))
    try:
        yield server
    finally:
        server.close()


def absent(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
