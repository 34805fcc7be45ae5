"""A server's settings for values that do not fit, and for quotes, do not matter."""

from functools import partial

import pytest
from sqlalchemy import Connection, insert, text
from sqlalchemy.exc import DataError

from docllm.schemas.ledger import tables
from docllm.schemas.ledger.database import Database
from tests.support.ledger_database import LedgerDatabase


def set_mode(ledger_db: LedgerDatabase, mode: str) -> str:
    """Set the mode of later connections that request none; return the former mode."""
    usual = ledger_db.run(lambda c: c.execute(text("SELECT @@global.sql_mode")).scalar_one())
    ledger_db.run(lambda c: c.execute(text("SET GLOBAL sql_mode=:mode"), {"mode": mode}))
    return str(usual)


def add_batch(connection: Connection, name: str, note: str) -> None:
    connection.execute(insert(tables.batch), {"name": name, "note": note})


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
@pytest.mark.parametrize("mode", ["", "ANSI,NO_BACKSLASH_ESCAPES"])
def test_a_server_configured_to_cut_values_does_not_cut_ours(
    ledger_db: LedgerDatabase, mode: str
) -> None:
    """A cut value would be stored as if it were right, with a warning that nobody reads."""
    usual = set_mode(ledger_db, mode)
    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False), timeout_s=10
    )
    try:
        for way, name in ((database.run, "with a \\"), (database.run_singly, "with a '")):
            with pytest.raises(DataError):
                way(partial(add_batch, name=name, note="x" * 501))
            way(partial(add_batch, name=name, note="x" * 500))
    finally:
        database.close()
        set_mode(ledger_db, usual)

    kept = {row.name: row.note for row in ledger_db.rows(tables.batch)}
    assert kept == dict.fromkeys(("with a \\", "with a '"), "x" * 500)
