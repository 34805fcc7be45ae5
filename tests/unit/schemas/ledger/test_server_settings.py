"""Errors that come from a server's settings are told from those of a row, and name the setting."""

from types import SimpleNamespace
from typing import Any

import pytest

from docllm.schemas.ledger.errors import REFUSED_BY_SETTINGS, away, passing
from docllm.schemas.ledger.server_settings import cause, refusing
from tests.unit.schemas.ledger.test_database import server_error


@pytest.mark.parametrize("number", sorted(REFUSED_BY_SETTINGS))
def test_an_error_of_the_settings_is_waited_for_and_named(number: int) -> None:
    """No task is to blame, so none is settled as dead over it."""
    error = server_error(number)

    assert passing(error)
    assert away(error)
    assert cause(error)


@pytest.mark.parametrize(
    ("number", "setting"),
    [
        (1665, "binlog_format=ROW"),
        (1290, "read_only=OFF"),
        (1153, "max_allowed_packet=64M"),
        (3750, "sql_require_primary_key=OFF"),
        (1173, "innodb_force_primary_key=OFF"),
        (1071, "innodb_page_size=16k"),
        (1193, "MySQL 8.0, MariaDB 10.6"),
    ],
)
def test_the_setting_is_named(number: int, setting: str) -> None:
    """A person need not know the server's error numbers."""
    assert setting in cause(server_error(number))


def test_an_error_about_a_row_names_no_setting() -> None:
    """A value that does not fit is no fault of the server."""
    assert cause(server_error(1406)) == ""
    assert not passing(server_error(1406))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"version": "8.0.40", "log_bin": "ON", "binlog_format": "ROW"}, ""),
        ({"version": "9.7.4-2"}, ""),
        ({"version": "10.6.21-MariaDB-log", "log_bin": "OFF", "binlog_format": "STATEMENT"}, ""),
        ({"version": "5.5.5-10.11.6-MariaDB"}, ""),
        ({"version": "8.0.mysql_aurora.3.04.0", "innodb_read_only": "ON"}, "it is read-only"),
        ({"version": "8.4.0", "super_read_only": "ON"}, "it is read-only"),
        ({"version": "8.0.40", "log_bin": "ON", "binlog_format": "STATEMENT"}, "binlog_format"),
        ({"version": "5.7.44"}, "too old; docllm needs MySQL 8.0, MariaDB 10.6, or newer"),
        ({"version": "10.5.27-MariaDB"}, "too old"),
        ({}, ""),
    ],
)
def test_variables_are_read_before_anything_fails(variables: dict[str, str], words: str) -> None:
    """A server that hides its variables, as a proxy may, is tried."""
    connection: Any = SimpleNamespace(
        dialect=SimpleNamespace(name="mysql"), execute=lambda _: list(variables.items())
    )

    assert (words in refusing(connection)) if words else refusing(connection) == ""
