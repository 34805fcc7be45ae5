"""The installation waits while another program installs packages, as new machines do at first."""

import fcntl
import os
from pathlib import Path
from typing import IO

import pytest

from tests.servers.install import RETRY_S, when_free
from tests.servers.process import program

# Each lock of apt-get: the command that takes it, and its file.
LOCKS = [
    ("update", "lists/lock"),
    ("install", "dpkg/lock-frontend"),
    ("install", "dpkg/lock"),
    ("install", "cache/archives/lock"),
]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Return an apt-get with folders of its own, so that no lock of the machine matters."""
    for folder in ("lists/partial", "cache/archives/partial", "dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dpkg/status").touch()
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": str(tmp_path),
        "Dir::State::status": f"{tmp_path}/dpkg/status",
        "Dir::Cache": f"{tmp_path}/cache",
    }
    apt = program("apt-get", package="apt")
    return [apt, "-qq", *(f"--option={name}={value}" for name, value in options.items())]


def held(lock: Path) -> IO[str]:
    """Take a lock, as another apt-get does."""
    file = lock.open("w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


@pytest.mark.parametrize(("action", "name"), LOCKS)
def test_a_lock_is_waited_for(
    command: list[str], action: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command runs once the lock is free, and one line says who holds it."""
    pauses: list[float] = []
    lock = held(tmp_path / name)

    def pause(duration_s: float) -> None:
        pauses.append(duration_s)
        if len(pauses) == 2:
            lock.close()

    when_free([*command, action], pause=pause)

    (line,) = capsys.readouterr().out.splitlines()
    assert pauses == [RETRY_S, RETRY_S]
    assert line.startswith("another program installs packages; waiting up to 600 s: ")
    assert f"{tmp_path / name}" in line
    assert f"{os.getpid()}" in line


def test_a_lock_that_stays_ends_the_installation(command: list[str], tmp_path: Path) -> None:
    """What apt-get says stands on the screen, and the exit code is not 0."""
    with held(tmp_path / "lists/lock"), pytest.raises(SystemExit, match="ended with 100"):
        when_free([*command, "update"], patience_s=2 * RETRY_S, pause=lambda _: None)


def test_another_failure_is_no_reason_to_wait(command: list[str]) -> None:
    """A package that does not exist will not exist later."""
    with pytest.raises(SystemExit, match="no-such-package ended with 100"):
        when_free([*command, "install", "no-such-package"], pause=lambda _: pytest.fail("waits"))
