"""A ledger for unit tests: an SQLite file with the tables of this version."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.ledger.database import Database
from schemas.ledger.tables import metadata


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty ledger."""
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    with database.engine.begin() as connection:
        metadata.create_all(connection)
    yield database
    database.close()
