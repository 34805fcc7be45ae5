"""Opening the parts: a refusal by the file system is exit code 2 with advice, no traceback."""

import asyncio
import fcntl
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from docllm.agent.cli import parser
from docllm.producer import __main__ as producer
from docllm.producer.app import is_bus_missing, is_ledger_missing, opened_ledger, until_up
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.settings.config import Config
from tests.support.clock import HandClock


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, name: str) -> None:
    """Let a method of Path fail for files of this name, as if a right were missing.

    Root never lacks a right, so the failure has to be simulated.
    """
    usual: Callable[..., object] = getattr(Path, method)

    def refusing(path: Path, *given: object, **named: object) -> object:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *given, **named)

    monkeypatch.setattr(Path, method, refusing)


async def make(config: Config) -> None:
    async with opened_ledger(config):
        pass


@pytest.mark.parametrize("to_come", [is_ledger_missing, is_bus_missing])
def test_a_data_folder_that_cannot_be_searched_is_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_come: Callable[[Config], bool]
) -> None:
    """`check` must not take a file that it may not see for a missing one.

    It looks before it opens anything.
    """
    assert to_come(Config(data_dir=tmp_path))
    for name in ("ledger.sqlite", "bus.sqlite"):
        refuse(monkeypatch, "stat", name)

    with pytest.raises(
        ConfigError,
        match=r"the data folder .* cannot be read: Permission denied; .* DOCLLM_DATA_DIR",
    ):
        to_come(Config(data_dir=tmp_path))


@pytest.mark.parametrize("name", ["r?one", "My%20Docs", "q#x%41", "a+b &c", "100%"])
def test_a_data_folder_of_any_name_holds_its_ledger(tmp_path: Path, name: str) -> None:
    """A `?` or `%` in the folder's name has no meaning in the ledger's URL.

    Two such folders used to share one ledger beside them, or none could be opened.
    """
    asyncio.run(make(Config(data_dir=tmp_path / name)))

    assert (tmp_path / name / "ledger.sqlite").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_program_that_waits_for_anothers_start_can_be_ended(tmp_path: Path) -> None:
    """Ctrl-C ends a program that waits for another program's start.

    The wait used to run on a thread, and the event loop waited for that thread's end.
    """
    freed = threading.Event()
    with (tmp_path / "setup.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def free() -> None:
            freed.set()
            fcntl.flock(held, fcntl.LOCK_UN)

        late = threading.Timer(20, free)
        late.start()
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(make(Config(data_dir=tmp_path)), 0.2))
        ended_before = not freed.is_set()
        late.cancel()
        late.join()

    assert ended_before


def test_a_foreign_lock_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign lock is a usage error, for example if root ran the first command in this folder."""
    refuse(monkeypatch, "open", "setup.lock")

    with pytest.raises(
        ConfigError,
        match=r"setup\.lock of the data folder .* cannot be written: Permission denied; .* "
        r"DOCLLM_DATA_DIR",
    ):
        asyncio.run(make(Config(data_dir=tmp_path)))


@pytest.mark.parametrize(
    "name",
    ["ledger.sqlite", "ledger.sqlite-wal", "bus.sqlite", "bus.sqlite-wal", "agents", "members"],
)
def test_foreign_files_in_the_data_folder_are_usage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Foreign files in the data folder are usage errors that name the file.

    SQLite only says that it is unable to open a file, and nobody has set DOCLLM_DATABASE_URL. For
    the bus's file, an agent would wait.
    """
    asyncio.run(make(Config(data_dir=tmp_path)))
    (tmp_path / name).touch()
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != name and may(path, mode)
    )

    with pytest.raises(
        ConfigError,
        match=rf"{re.escape(name)} of the data folder .* cannot be read and written; .* "
        r"DOCLLM_DATA_DIR",
    ):
        asyncio.run(make(Config(data_dir=tmp_path)))


def test_an_invalid_ledger_file_names_the_setting_of_the_data_folder(tmp_path: Path) -> None:
    """The error names the data folder's setting, because an embedded ledger has no address."""
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 100)

    with pytest.raises(UnreachableError, match=r"check DOCLLM_DATA_DIR$"):
        asyncio.run(make(Config(data_dir=tmp_path)))


@pytest.mark.parametrize(
    "run",
    [
        lambda: producer.main(["status"]),
        lambda: parser.main([]),
        lambda: parser.main(["resume", "default"]),
    ],
)
def test_a_current_folder_that_was_deleted_is_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    run: Callable[[], int],
) -> None:
    """A deleted current folder is a usage error: every relative path starts in it.

    The configuration file's path is the first of them.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert run() == 2

    output = "".join(capfd.readouterr())
    assert "the current folder cannot be found: No such file or directory" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("may_pass", "wait_s", "least_s"), [(True, 60, 60), (True, 0, 0), (False, 60, 0)]
)
def test_a_server_that_is_away_gets_the_time_of_wait_and_one_that_refuses_none(
    caplog: pytest.LogCaptureFixture, *, may_pass: bool, wait_s: int, least_s: int
) -> None:
    """The last try is made when the time is over; one line says that the program waits."""
    clock = HandClock()
    began_s = clock.now_s()

    async def ask() -> None:
        raise UnreachableError("nobody there", may_pass=may_pass)

    with pytest.raises(UnreachableError, match="nobody there"):
        asyncio.run(until_up("the server", ask, Config(up_by_s=began_s + wait_s), clock=clock))

    assert clock.now_s() - began_s == least_s
    assert caplog.messages == ["nobody there; docllm tries again for up to 60 s"][: least_s // 60]


def test_a_server_that_comes_up_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A second line says that the wait is over; a server that is up costs no line."""
    clock = HandClock()
    away = [UnreachableError("not yet")] * 3

    async def ask() -> str:
        if away:
            raise away.pop()
        return "answer"

    for _ in range(2):
        config = Config(up_by_s=clock.now_s() + 60)
        assert asyncio.run(until_up("the server", ask, config, clock=clock)) == "answer"

    assert caplog.messages[1:] == ["the server answers, after 2 s"]
