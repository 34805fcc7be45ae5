"""What `bench purge` reports, on a small ledger without a server."""

from pathlib import Path

from bench import purge
from schemas.ledger import migrations, tables
from schemas.ledger.database import Database
from tests.contract.ledger_parts import LedgerDatabase


def test_it_compares_settles_beside_a_purge_with_settles_alone(tmp_path: Path) -> None:
    """The batch is purged in turns while the worker settles, and both have figures."""
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    migrations.migrate(database)
    ledger = LedgerDatabase(database)
    purge._fill(ledger, purge.OLD, purge.QUICK)
    clock = purge.Turns(0.5, 4)

    figures = list(purge._measured(ledger, purge.QUICK, clock))

    assert [figure.goal for figure in figures] == [None, None, purge.GOAL, None]
    assert all(figure.value > 0 for figure in figures)
    assert len(clock.rests) == 4
    assert [row.purged_at for row in ledger.rows(tables.batch) if row.name == purge.OLD] == [None]
    database.close()
