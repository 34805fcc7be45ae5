"""The data folder is for its owner alone: it holds prompts and answers in clear text."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from docllm.agent.membership.life_locks import LifeLocks
from docllm.producer.app import bus_path, opened, opened_ledger
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.life_lock import AGENTS, MEMBERS, LifeLock
from docllm.producer.text.private_files import make_file
from docllm.schemas.settings.config import Config


@pytest.fixture(params=[0o022, 0])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set the usual umask, under which others may read, or none."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def use(config: Config) -> None:
    """Open all parts, as `load` and an agent do, and check the modes while all files exist."""
    async with opened(config, "docllm") as parts:
        locks = LifeLocks(config.data_dir / AGENTS)
        locks.hold(1)
        with ExitStack() as stack:
            stack.callback(locks.close)
            stack.callback(LifeLock(config.data_dir / MEMBERS, member="m").release)
            stack.callback(BusFile(bus_path(config)).close)
            await parts.transactions.read(lambda _: None)
            check_modes(config.data_dir)


def check_modes(folder: Path) -> None:
    modes = {
        path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777
        for path in [folder, *folder.rglob("*")]
    }
    folders = {".", AGENTS, MEMBERS}
    assert {
        "ledger.sqlite",
        "ledger.sqlite-wal",
        "ledger.sqlite-shm",
        "bus.sqlite",
        "bus.sqlite-wal",
        "setup.lock",
    } < modes.keys()
    assert modes == {name: 0o700 if name in folders else 0o600 for name in modes}


@pytest.mark.usefixtures("umask")
def test_new_files_in_the_data_folder_are_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No other user can read new files, or hold the lock that every program awaits at its start."""
    asyncio.run(use(Config(data_dir=tmp_path / "data")))

    assert caplog.messages == []


def test_a_folder_that_others_may_read_is_reported_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that others may read is logged and left alone, but new files in it are closed.

    Whoever made the folder may have wanted its mode.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)

    async def make() -> None:
        async with opened_ledger(Config(data_dir=folder)):
            pass

    with caplog.at_level(logging.WARNING):
        asyncio.run(make())

    assert caplog.messages == [
        (
            f"other users of this machine may read {folder}, which holds prompts and answers; "
            f"run: chmod -R go= {folder}"
        )
    ]
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_an_existing_database_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing database is not opened: closing it would drop SQLite's locks on it."""
    path = tmp_path / "a.sqlite"
    sqlite3.connect(path).close()
    path.touch()
    handles = list[int]()
    monkeypatch.setattr("docllm.producer.text.private_files.os.close", handles.append)

    make_file(path)

    assert handles == []


def test_a_file_that_cannot_be_made_is_reported_when_it_is_opened(tmp_path: Path) -> None:
    """A file that cannot be made is left to the program that opens it, which reports the error."""
    make_file(tmp_path / "no" / "a.sqlite")

    assert not (tmp_path / "no").exists()
