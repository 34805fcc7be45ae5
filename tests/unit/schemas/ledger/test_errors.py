"""Database errors: which may pass, and which say something about a row."""

import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from docllm.schemas.ledger.errors import (
    CONFLICTS,
    FULL,
    LOST,
    READ_ONLY,
    TOO_LONG,
    TURNED_AWAY,
    busy,
    code,
    lost,
    passing,
)
from tests.unit.schemas.ledger.test_database import server_error


def file_error(text: str) -> OperationalError:
    return OperationalError("a statement", {}, sqlite3.OperationalError(text))


@pytest.mark.parametrize("number", sorted(CONFLICTS | TOO_LONG | TURNED_AWAY | READ_ONLY | FULL))
def test_what_a_server_refuses_for_a_while_says_nothing_about_a_row(number: int) -> None:
    """Conflicts, slow statements, refused connections, a read-only server, a full disk.

    Fault runs found that a task was settled as dead after a server had no connection left for it,
    and that agents ended while MariaDB's disk was full.
    """
    error = server_error(number)

    assert (code(error), passing(error), busy(error), lost(error)) == (number, True, True, False)


@pytest.mark.parametrize("number", sorted(LOST))
def test_a_connection_that_is_lost_may_come_back(number: int) -> None:
    """A lost connection is lost, not busy: whether the server answers decides what happens."""
    error = server_error(number)

    assert (passing(error), busy(error), lost(error)) == (True, False, True)


def test_a_connection_that_the_driver_gave_up_is_lost() -> None:
    """A connection that the driver gave up counts as lost, with any error number or none."""
    assert lost(server_error(0, cut=True))
    assert passing(server_error(0, cut=True))


@pytest.mark.parametrize(
    "text",
    [
        "database is locked",
        "disk I/O error",
        "database or disk is full",
        "unable to open database file",
    ],
)
def test_a_busy_or_full_file_may_pass(text: str) -> None:
    """A busy or full SQLite file may pass: the other writer ends, or somebody clears the disk."""
    assert passing(file_error(text))
    assert busy(file_error(text))


@pytest.mark.parametrize(
    "error",
    [
        server_error(1062),
        server_error(1064),
        server_error(1142),
        file_error("no such table: task"),
        IntegrityError("a statement", {}, sqlite3.IntegrityError("UNIQUE constraint failed")),
        ProgrammingError("a statement", {}, Exception("database is locked, says a text of ours")),
        ValueError(1213, "a bug of ours"),
    ],
)
def test_everything_else_does_not_pass(error: Exception) -> None:
    """Bugs, duplicates, missing tables and missing rights do not pass: a retry would hide them."""
    assert not passing(error)


def test_waiting_for_a_connection_of_the_pool_may_pass() -> None:
    """A wait for a pooled connection may pass: all connections are in use, which is no fault."""
    assert passing(PoolTimeout("QueuePool limit reached"))
