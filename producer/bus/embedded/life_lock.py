"""Proof of life: each member holds an flock on a file of its own.

The kernel frees the lock when the process ends, however it ends. A process that was forked without
exec keeps its parent's lock. Then only the session timeout shows that the parent has died.
"""

import fcntl
import os
from pathlib import Path

from docllm.producer.text.private_files import FILE_MODE, make_folder

# Subfolders of the data folder, one for each kind of member.
AGENTS = "agents"
MEMBERS = "members"
LOCK_FOLDERS = (AGENTS, MEMBERS)


class LifeLock:
    """The lock of one member, held from construction until `release`.

    The lock file gets its name only once it is locked, so a free lock always means a dead member.
    """

    def __init__(self, folder: Path, *, member: str) -> None:
        make_folder(folder)
        path = _path(folder, member)
        unborn = path.with_suffix(".unborn")
        self._fd = os.open(unborn, os.O_RDWR | os.O_CREAT, FILE_MODE)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        unborn.rename(path)

    def release(self) -> None:
        """Free the lock; from now on the member counts as dead."""
        os.close(self._fd)


def is_dead(folder: Path, member: str) -> bool:
    """Return whether nobody holds the member's lock.

    Returns False if another user's lock file may not be opened; the session timeout decides then.
    Probes take a shared lock, so two probes do not mistake each other for the owner.
    """
    try:
        fd = os.open(_path(folder, member), os.O_RDONLY)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def forget(folder: Path, member: str) -> None:
    """Remove the lock file of a member that is gone; its id is never reused."""
    _path(folder, member).unlink(missing_ok=True)


def _path(folder: Path, member: str) -> Path:
    return folder / f"{member}.lock"
