"""Transactions are tried again, outages are logged once, and servers are checked."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from docllm.schemas.errors import ConfigError, UnreachableError, UnsafeStateError
from docllm.schemas.ledger.database import MIN_PACKET_BYTES, Database, Stopped
from docllm.schemas.ledger.errors import (
    DENIED,
    TOO_LONG,
)
from docllm.schemas.runtime.outage import Outage
from tests.support.clock import HandClock


def server_error(number: int, *, cut: bool = False) -> OperationalError:
    return OperationalError(
        "a statement", {}, Exception(number, "said the server"), connection_invalidated=cut
    )


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def database(tmp_path: Path, pauses: list[float]) -> Iterator[Database]:
    """A database that records its pauses and does not wait."""
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}", pause=pauses.append)
    yield database
    database.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def timed(tmp_path: Path, clock: HandClock, pauses: list[float]) -> Iterator[Database]:
    """A database whose pauses pass on a clock of their own."""

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.at_s += seconds

    outage = Outage(name="the database", clock=clock)
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}", pause=pause, outage=outage)
    yield database
    database.close()


def failing(*errors: Exception) -> Callable[[Connection], str]:
    """Return work that raises each of these errors once, then succeeds."""
    left = list(errors)

    def work(_: Connection) -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


def test_work_is_done_again_until_it_is_through(database: Database, pauses: list[float]) -> None:
    """Each failure is followed by a pause, and the pauses grow to a second."""
    assert database.run(failing(*[server_error(1213)] * 12)) == "done"

    assert len(pauses) == 12
    assert all(
        0.5 * min(1.0, 0.02 * 2**count) <= pause <= min(1.0, 0.02 * 2**count)
        for count, pause in enumerate(pauses, start=1)
    )


def test_an_outage_is_logged_once_for_all_callers(
    timed: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage is logged once with the database's error, whoever asks.

    A person at a terminal would otherwise wait for ever without knowing why.
    """
    url = timed.engine.url.render_as_string()
    other = Database(url, pause=timed._pause, outage=timed.outage)
    for database in (timed, other):
        database.run(failing(*[server_error(1021)] * 8))  # for less than 10 s
    other.close()

    (message,) = caplog.messages
    assert message.startswith("the database does not answer (")
    assert "1021" in message


@pytest.mark.parametrize("number", sorted(TOO_LONG))
def test_a_statement_that_took_too_long_is_logged_and_retried_after_a_pause(
    database: Database, pauses: list[float], caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """A statement that took too long is logged and retried after a pause.

    The server may be under load, or the statement may be hopeless.
    """
    assert database.run(failing(server_error(number))) == "done"

    assert sum(pauses) > 10
    (message,) = caplog.messages
    assert "ended a statement that took too long" in message


@pytest.mark.parametrize("number", sorted(DENIED))
def test_a_missing_right_is_the_operators_to_give(database: Database, number: int) -> None:
    """A missing right is exit code 3, names right and table, and is not retried."""
    message = "INSERT command denied to user 'app'@'10.0.0.5' for table 'task'"
    error = OperationalError("a statement", {}, Exception(number, message))

    with pytest.raises(UnreachableError) as raised:
        database.run(failing(error))

    assert raised.value.exit_code == 3
    assert message in str(raised.value)
    assert "GRANT INSERT ON" in str(raised.value)


def test_a_single_deadlock_is_no_outage(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A single deadlock is no outage: it passes with the next try, so nobody must act."""
    for _ in range(3):
        database.run(failing(*[server_error(1213)] * 9))

    assert database.outage.lasts_s == 0
    assert caplog.messages == []


def test_a_long_outage_is_asked_about_more_seldom(timed: Database, pauses: list[float]) -> None:
    """During a long outage the pauses grow to a few seconds.

    Eight threads that tried each second used a fifth of a core.
    """
    timed.run(failing(*[server_error(2003)] * 80))

    assert max(pauses[:10]) <= 1.0
    assert 1.0 < max(pauses[50:]) <= 4.0


def test_tries_are_limited_where_the_caller_says_so(
    database: Database, pauses: list[float]
) -> None:
    """After the last allowed try, the last error is raised without another pause."""
    with pytest.raises(OperationalError):
        database.run(failing(*[server_error(2006)] * 5), tries=3)

    assert len(pauses) == 2
    assert database.run_singly(failing(server_error(2006)), tries=2) == "done"


def test_a_program_that_leaves_does_not_try_again(database: Database, pauses: list[float]) -> None:
    """After `close`, the first failure raises Stopped."""
    database.close()

    with pytest.raises(Stopped):
        database.run(failing(server_error(1213)))

    assert pauses == []
    assert database.run(failing()) == "done"


def test_a_program_that_leaves_does_not_wait_for_a_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait for an answer ends when the program leaves."""
    monkeypatch.setattr(database, "answers", lambda: False)
    database.close()

    with pytest.raises(Stopped):
        database.wait_for_answer()


def test_waiting_ends_with_the_first_answer(
    database: Database, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is asked again, with growing pauses, until it answers."""
    answers = iter([False, False, True])
    monkeypatch.setattr(database, "answers", lambda: next(answers))

    database.wait_for_answer()

    assert len(pauses) == 2
    assert database.stopping.is_set() is False


def test_an_embedded_ledger_is_a_file(tmp_path: Path) -> None:
    """An SQLite ledger must be a file, and it survives a crash of the machine.

    A ledger in memory is refused, because it would be lost at the end.
    """
    with pytest.raises(ConfigError, match="DOCLLM_DATA_DIR"):
        Database("sqlite://")
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")

    modes = database.run(
        lambda c: [
            c.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    )

    database.close()
    assert modes == ["wal", 2, 2_000]


def test_a_locked_file_is_reported_after_two_waits(
    timed: Database, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite waits 2 s within each try; a person learns the cause within 5 s."""
    left = [1, 2]

    def work(_: Connection) -> None:
        if left:
            left.pop()
            clock.at_s += 2
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))

    timed.run(work)

    (message,) = caplog.messages
    assert "(database is locked: another program, such as a backup" in message


def test_a_missing_folder_does_not_answer(tmp_path: Path) -> None:
    """For a missing folder, `answers` returns False and raises nothing."""
    database = Database(f"sqlite:///{tmp_path / 'none' / 'ledger.db'}")

    assert not database.answers()
    database.close()


@pytest.mark.parametrize(
    "address",
    ["u:hunter2\U0001f600@127.0.0.1:1", f"u:hunter2@{'x' * 64}:1"],
    ids=["password", "host"],
)
def test_an_address_that_the_driver_cannot_write_down_is_usage(address: str) -> None:
    """An address that the driver cannot encode is a usage error without the driver's text.

    The driver allows 256 kinds of letters in a password and 63 letters in a part of a host's name.
    Its errors quote both.
    """
    database = Database(f"mysql+pymysql://{address}/d", connections=1)

    with pytest.raises(ConfigError, match="DOCLLM_DATABASE_URL") as refused:
        database.require_usable()

    database.close()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("packet", [1 << 20, 4 << 20, MIN_PACKET_BYTES - 1])
def test_a_server_that_takes_small_statements_alone_is_unsafe(
    packet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes only small statements is unsafe.

    It ends the connection at a larger one, as if it were lost, and the statement would be retried
    for ever.
    """
    database = Database("mysql+pymysql://u:hunter2@127.0.0.1:1/d", connections=1)
    monkeypatch.setattr(database, "_autocommit", lambda _work: packet)

    with pytest.raises(
        UnsafeStateError, match=rf"accepts at most {packet} bytes .* set max_allowed_packet=64M"
    ) as refused:
        database.require_usable()

    monkeypatch.setattr(database, "_autocommit", lambda _work: MIN_PACKET_BYTES)
    database.require_usable()
    database.close()
    assert "hunter2" not in str(refused.value)
