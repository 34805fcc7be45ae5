"""Proof of life: a lock ends with its process, and nobody mistakes a probe for its owner."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from docllm.producer.bus.embedded.life_lock import LifeLock, is_dead


def test_sigkill_frees_the_lock_of_a_process(tmp_path: Path) -> None:
    """A process killed with SIGKILL counts as dead at once, and not before."""
    code = "import sys; from pathlib import Path; "
    code += "from docllm.producer.bus.embedded.life_lock import LifeLock; "
    code += "lock = LifeLock(Path(sys.argv[1]), member='m'); "
    code += "print('held', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        alive = is_dead(tmp_path, "m")
        child.kill()
        child.wait()

    assert not alive
    assert is_dead(tmp_path, "m")


def test_a_lock_is_held_from_the_moment_its_file_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock is held as soon as its file exists: a free file would prove a death."""
    before: list[bool] = []
    take = fcntl.flock

    def seen(fd: int, how: int) -> None:
        before.append((tmp_path / "m.lock").exists())
        take(fd, how)

    monkeypatch.setattr(fcntl, "flock", seen)
    lock = LifeLock(tmp_path, member="m")
    monkeypatch.undo()
    held = not is_dead(tmp_path, "m")
    lock.release()

    assert before == [False]
    assert held
    assert [file.name for file in tmp_path.iterdir()] == ["m.lock"]


def test_probes_do_not_mistake_each_other_for_the_owner(tmp_path: Path) -> None:
    """Probing does not take the lock from its owner; a missing file proves death as well."""
    lock = LifeLock(tmp_path, member="m")

    held = [is_dead(tmp_path, "m") for _ in range(3)]
    lock.release()

    assert held == [False, False, False]
    assert is_dead(tmp_path, "m")
    assert is_dead(tmp_path, "never-born")


def test_a_lock_that_may_not_be_opened_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that may not be opened proves nothing; the session timeout decides.

    It belongs to another user with a strict umask.
    """
    LifeLock(tmp_path, member="m").release()

    def refusing(path: Path, _flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("docllm.producer.bus.embedded.life_lock.os.open", refusing)

    assert not is_dead(tmp_path, "m")
