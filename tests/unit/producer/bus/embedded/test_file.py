"""The bus file: durable, of one version, and named when it cannot be opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from docllm.producer.bus.embedded import file as bus_file
from docllm.producer.bus.embedded.file import LOCKED_S, BusFile, until_unlocked
from docllm.producer.ports import DELIVERY_LIMIT_S
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from tests.support.clock import HandClock


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


def test_a_locked_file_is_asked_again_for_a_while_and_not_after(tmp_path: Path) -> None:
    """A try that waited for the lock in vain is repeated; any other error is not."""
    clock = HandClock()
    file = BusFile(tmp_path / "bus.sqlite")
    file.all("PRAGMA busy_timeout=1")
    tries = []

    def write() -> None:
        tries.append(clock.now_s())
        clock.at_s += bus_file._BUSY_S  # as a try in vain takes
        with file.write():
            pass

    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        until_s = clock.now_s() + LOCKED_S
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            until_unlocked(write, clock=clock, until_s=until_s)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        until_unlocked(lambda: file.all("SELECT 1 FROM none"), clock=clock, until_s=clock.at_s)
    file.close()

    assert len(tries) > 1
    assert tries[-1] <= until_s < clock.now_s()
    assert LOCKED_S + bus_file._BUSY_S < DELIVERY_LIMIT_S
