"""What the revisions are, and of which tables; no program but `migrate` loads Alembic."""

import argparse
import asyncio
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateIndex, CreateTable

from docllm.producer import app
from docllm.producer.cli import admin
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger import database, migrations
from docllm.schemas.ledger.database import TIMEOUT_S, Database
from docllm.schemas.ledger.migrations.upgrade import scripts
from docllm.schemas.ledger.tables import metadata
from docllm.schemas.settings.sources import load_config


def test_the_revisions_are_alembics() -> None:
    """Each revision that the version knows has its file, in this order."""
    in_order = [script.revision for script in scripts().walk_revisions()][::-1]

    assert list(migrations.REVISIONS) == in_order
    assert migrations.own_revision() == scripts().get_current_head()


def test_the_newest_digest_is_that_of_the_tables() -> None:
    """Who changes the tables changes the digest, so that no ledger with other tables is used."""
    statements: list[CreateTable | CreateIndex] = []
    for table in metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [CreateTable(table), *map(CreateIndex, indexes)]
    texts = [" ".join(str(one.compile(dialect=mysql.dialect())).split()) for one in statements]

    digest = sha256("\n".join(texts).encode()).hexdigest()[:16]

    assert migrations.REVISIONS[migrations.own_revision()] == digest


def test_asking_for_the_revision_loads_no_alembic() -> None:
    """A program that does not migrate does not load Alembic."""
    code = "import sys, docllm.schemas.ledger.migrations; sys.exit('alembic' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", code], check=False)

    assert ended.returncode == 0


def test_migrate_waits_for_its_statements_as_long_as_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index on 50 million rows takes minutes; other programs give up after half a minute."""
    limits: list[object] = []

    def opened(url: str, *, timeout_s: int | None = TIMEOUT_S, **rest: Any) -> Database:
        limits.append(timeout_s)
        return Database(url, timeout_s=timeout_s, **rest)

    monkeypatch.setattr(app, "Database", opened)
    config = load_config(flags={}, environ={}, cwd=tmp_path)

    assert asyncio.run(admin.migrate(config, argparse.Namespace(json=False))) == 0
    assert limits == [None]


def test_migrate_says_that_another_program_keeps_the_file_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends soon, with what to do and no traceback."""
    monkeypatch.setattr(database, "_LOCK_STEP_S", 0)
    file = tmp_path / "ledger.sqlite"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(UnreachableError, match="keeps it locked; end that program, then run"):
        migrations.migrate(Database(f"sqlite:///{file}", connections=1))
    other.close()
