"""Revisions are read from the file names, without Alembic."""

import argparse
import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docllm.producer import app
from docllm.producer.cli import admin
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger import database, migrations
from docllm.schemas.ledger.database import TIMEOUT_S, Database
from docllm.schemas.ledger.migrations.upgrade import scripts
from docllm.schemas.settings.sources import load_config


def test_the_wanted_revision_is_alembics_head() -> None:
    """The newest file by name is the head of Alembic's chain."""
    assert migrations.own_revision() == scripts().get_current_head()


def test_every_revision_is_known_by_its_files_name() -> None:
    """Every script's revision is the beginning of its file name."""
    assert migrations._own_revisions() == {script.revision for script in scripts().walk_revisions()}


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
