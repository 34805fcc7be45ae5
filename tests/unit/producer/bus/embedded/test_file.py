"""The bus file: durable, of one version, and named when it cannot be opened."""

import sqlite3
from pathlib import Path

import pytest

from producer.bus.embedded.file import BusFile
from schemas.errors import UnreachableError, UnsafeStateError


def test_file_is_safe_against_power_loss(tmp_path: Path) -> None:
    """A commit is on the disk when it returns: WAL with synchronous=FULL."""
    file = BusFile(tmp_path / "bus.sqlite")

    assert file.one("PRAGMA journal_mode") == ("wal",)
    assert file.one("PRAGMA synchronous") == (2,)
    file.close()


def test_file_of_another_version_is_refused(tmp_path: Path) -> None:
    """A bus of another version is not changed, and the file is closed."""
    path = tmp_path / "bus.sqlite"
    BusFile(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()

    with pytest.raises(UnsafeStateError, match="99") as refused:
        BusFile(path)
    assert refused.tb is not None  # it would hold the file open
    assert path not in {
        link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
    }


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """If a file stands in the folder's place, the error names the path."""
    (tmp_path / "data").write_text("not a folder")

    with pytest.raises(UnreachableError, match=r"data/bus\.sqlite"):
        BusFile(tmp_path / "data" / "bus.sqlite")
