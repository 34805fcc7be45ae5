"""Counts the rows that a piece of work reads in a ledger; on SQLite its steps stand for them.

Tested by tests/contract/database/test_plans.py.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from sqlalchemy import Connection, text

Work = Callable[[Connection], object]


def reads(connection: Connection, work: Work) -> int:
    """Return how many rows a piece of work reads; on SQLite how many steps it takes."""
    measure = _steps if connection.dialect.name == "sqlite" else _rows
    return measure(connection, work)


def _rows(connection: Connection, work: Work) -> int:
    before = _counters(connection)
    work(connection)
    after = _counters(connection)
    read = sum(after[name] - before[name] for name in before if name.startswith("Handler_read"))
    return read + _left_out(after) - _left_out(before)


def _left_out(counters: Mapping[str, int]) -> int:
    """Return how many index entries MariaDB read and left out before it read their rows."""
    return counters.get("Handler_icp_attempts", 0) - counters.get("Handler_icp_match", 0)


def _counters(connection: Connection) -> dict[str, int]:
    counters = connection.execute(text("SHOW SESSION STATUS LIKE 'Handler%'"))
    return {name: int(value) for name, value in counters}


def _steps(connection: Connection, work: Work) -> int:
    steps = count()
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(lambda: next(steps) and 0, 1)
    try:
        work(connection)
    finally:
        driver.set_progress_handler(None, 1)
    return next(steps)
