"""What `bench purge` reports, on a small ledger without a server."""

from pathlib import Path

from bench import purge
from schemas.ledger import migrations, tables
from schemas.ledger.database import Database
from tests.contract.ledger_parts import LedgerDatabase


def test_it_compares_settles_beside_a_purge_with_settles_alone(tmp_path: Path) -> None:
    """All batches are purged while the worker settles, and both have figures."""
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    migrations.migrate(database)
    ledger = LedgerDatabase(database)
    for number in range(purge.BATCHES):
        purge._fill(ledger, f"old{number}", 20)

    figures = {figure.what: figure for figure in purge._measured(ledger, 80, 0.5)}

    assert figures["the same, of 80 tasks"].goal == purge.GOAL
    assert all(figure.value > 0 for figure in figures.values())
    purged_at = {row.name: row.purged_at for row in ledger.rows(tables.batch)}
    assert None not in [purged_at[f"old{number}"] for number in range(purge.BATCHES)]
    database.close()
