"""What `bench purge` reports, on a small ledger without a server."""

from pathlib import Path

from bench import purge
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from tests.support.ledger_database import LedgerDatabase

TASKS = 6_000  # more than the purge deletes in its turns


def test_it_compares_settles_beside_a_purge_with_settles_alone(tmp_path: Path) -> None:
    """Settles beside the purge, settles without it, and the rest of the purge have figures."""
    database = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    migrations.migrate(database)
    ledger = LedgerDatabase(database)
    purge._fill(ledger, purge.OLD, TASKS)
    clock = purge.Turns(0.3, 2)

    figures = list(purge._measured(ledger, TASKS, clock, whole=True))

    assert [figure.goal for figure in figures] == [None, None, purge.GOAL, None, None]
    assert all(figure.value > 0 for figure in figures)
    assert len(clock.rests) == 2
    (old,) = (row for row in ledger.rows(tables.batch) if row.name == purge.OLD)
    assert old.purged_at is not None
    database.close()
