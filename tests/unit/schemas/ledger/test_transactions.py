"""Transactions on a database: one call of the executor each, with the arguments bound."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from docllm.schemas.ledger.database import Connection, Database
from docllm.schemas.ledger.transactions import Transactions

Result = TypeVar("Result")


class CountingExecutor:
    """Runs each call here and now, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, call: Callable[[], Result]) -> Awaitable[Result]:
        self.calls += 1

        async def run() -> Result:
            return call()

        return run()


@pytest.fixture
def executor() -> CountingExecutor:
    return CountingExecutor()


@pytest.fixture
def transactions(tmp_path: Path, executor: CountingExecutor) -> Iterator[Transactions]:
    database = Database(f"sqlite:///{tmp_path / 'rows.sqlite'}", pause=lambda _delay_s: None)
    database.run(lambda c: c.execute(text("CREATE TABLE numbers (number INTEGER)")))
    yield Transactions(database=database, executor=executor)
    database.close()


def insert(connection: Connection, number: int, *, copies: int = 1) -> int:
    for _ in range(copies):
        connection.execute(text("INSERT INTO numbers VALUES (:number)"), {"number": number})
    return copies


def numbers(connection: Connection, at_least: int = 0) -> list[int]:
    rows = connection.execute(
        text("SELECT number FROM numbers WHERE number >= :least"), {"least": at_least}
    )
    return [number for (number,) in rows]


class Stumbling:
    """Inserts a number and fails after that, as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, connection: Connection, number: int) -> int:
        insert(connection, number)
        if self.failures:
            self.failures -= 1
            raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))
        return number


def test_a_write_binds_its_arguments_and_commits_in_one_call(
    transactions: Transactions, executor: CountingExecutor
) -> None:
    assert asyncio.run(transactions.write(insert, 7, copies=2)) == 2
    assert executor.calls == 1
    assert transactions.database.run_singly(numbers) == [7, 7]


def test_a_read_binds_its_arguments_in_one_call(
    transactions: Transactions, executor: CountingExecutor
) -> None:
    transactions.database.run(lambda c: [insert(c, number) for number in (1, 2, 3)])

    assert asyncio.run(transactions.read(numbers, at_least=2)) == [2, 3]
    assert executor.calls == 1


def test_a_write_is_tried_again_within_its_call(
    transactions: Transactions, executor: CountingExecutor
) -> None:
    """The rows of a try that failed are not there."""
    assert asyncio.run(transactions.write(Stumbling(failures=2), 7)) == 7
    assert executor.calls == 1
    assert transactions.database.run_singly(numbers) == [7]


def test_a_write_once_raises_the_first_error(
    transactions: Transactions, executor: CountingExecutor
) -> None:
    with pytest.raises(OperationalError, match="locked"):
        asyncio.run(transactions.write_once(Stumbling(failures=1), 7))

    assert executor.calls == 1
    assert transactions.database.run_singly(numbers) == []


@pytest.mark.parametrize(("sqlite", "way"), [(True, "run"), (False, "run_singly")])
def test_statements_are_committed_singly_except_on_sqlite(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch, *, sqlite: bool, way: str
) -> None:
    """SQLite's `auto` is for reading only."""
    transactions.database.sqlite = sqlite
    for name in ("run", "run_singly"):
        monkeypatch.setattr(transactions.database, name, lambda _work, name=name: name)

    assert asyncio.run(transactions.write_singly(insert, 7)) == way  # type: ignore[comparison-overlap]
