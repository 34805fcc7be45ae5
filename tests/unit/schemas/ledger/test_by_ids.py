"""Statements for the rows of some ids: their constants and numbers stand in the text."""

from typing import Any
from unittest.mock import create_autospec

import pytest
from sqlalchemy import Connection, Select, Update, bindparam, select, update
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from docllm.schemas.ledger.by_ids import execute_by_ids
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.task.states import WAITING, Status

OF_IDS = task.c.id.in_(bindparam("ids", expanding=True))
READ = select(task.c.id).where(OF_IDS)
MOVE = (
    update(task)
    .where(OF_IDS, task.c.status.in_(WAITING), task.c.fence <= bindparam("at_fence"))
    .values(status=int(Status.PROCESSING), owner=bindparam("by_owner"), due_at=NEVER_TIME)
)


def _text(statement: Select[Any] | Update, ids: set[int], **numbers: float) -> dict[str, str]:
    """Return what is executed, by dialect."""
    texts = {}
    for dialect in (MySQLDialect_pymysql(), SQLiteDialect_pysqlite()):
        connection = create_autospec(Connection, instance=True)
        connection.dialect = dialect
        execute_by_ids(connection, statement, ids, **numbers)
        (texts[dialect.name],) = connection.exec_driver_sql.call_args[0]
    return texts


def test_ids_numbers_and_constants_are_in_the_text() -> None:
    written = (
        "UPDATE task SET status=1, owner=77, due_at='9999-12-31 00:00:00.000000' "
        "WHERE task.id IN (3,9,20) AND task.status IN (0,2) AND task.fence <= 0"
    )
    assert _text(MOVE, {9, 20, 3}, at_fence=0, by_owner=77) == dict.fromkeys(
        ("mysql", "sqlite"), written
    )


def test_no_ids_are_no_rows() -> None:
    assert _text(READ, set())["mysql"].endswith("IN (NULL)")


def test_the_databases_time_is_as_it_is() -> None:
    texts = _text(select(task.c.id, utc_now().label("now")).where(OF_IDS), {1})

    assert "UTC_TIMESTAMP(6)" in texts["mysql"]
    assert "strftime('%Y-%m-%d %H:%M:%f', 'now')" in texts["sqlite"]


@pytest.mark.parametrize("text", ["it's", "\\", "%s :ids {ids}"])
def test_a_text_is_refused(text: str) -> None:
    """A text would have to be escaped, and each database has rules of its own."""
    with pytest.raises(TypeError, match="str cannot be a constant"):
        _text(READ.where(batch.c.name == text), {1})


def test_a_missing_number_is_an_error() -> None:
    with pytest.raises(KeyError, match="by_owner"):
        _text(MOVE, {1}, at_fence=0)
