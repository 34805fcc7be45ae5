"""Reads from /proc what threads use, and sessions of processes.

A session includes all processes that its leader started.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TASKS = _PROC / "self" / "task"
# Fields of /proc/.../stat after the command's name in brackets, which may hold blanks.
_STATE, _SESSION, _PAGES = 0, 3, 21
_MAJOR_FAULTS = 9
_TICKS = 11, 12  # in user mode and in the kernel


@dataclass(frozen=True, slots=True)
class Use:
    """What the living processes of a session use together."""

    memory_bytes: int = 0
    processes: int = 0


def use_of(sessions: Collection[int], folder: Path = _PROC) -> dict[int, Use]:
    """Return what each session uses; sessions without a process, or without /proc, are left out."""
    used: dict[int, Use] = {}
    with suppress(OSError):
        for process in folder.iterdir():
            if process.name.isdigit() and (fields := _fields(process)):
                session = int(fields[_SESSION])
                if session in sessions and fields[_STATE] != "Z":
                    before = used.get(session, Use())
                    used[session] = Use(
                        before.memory_bytes + _memory_bytes(fields), before.processes + 1
                    )
    return used


def memory_of(pid: int, folder: Path = _PROC) -> int:
    """Return what a process uses by itself; 0 if the system does not tell."""
    fields = _fields(folder / str(pid))
    return _memory_bytes(fields) if fields else 0


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """What a thread has used since it began.

    `ready_s` is how long it waited for a processor. `faults` counts the pages that were read from
    the disk for it.
    """

    cpu_s: float
    ready_s: float
    faults: int


def thread_use(native_id: int, folder: Path = _TASKS) -> ThreadUse | None:
    """Return what a thread of this process has used; None if the system does not tell."""
    try:
        fields = _fields(folder / str(native_id))
        schedule = (folder / str(native_id) / "schedstat").read_text().split()
        ticks = sum(int(fields[index]) for index in _TICKS)
        return ThreadUse(
            cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
            ready_s=int(schedule[1]) / 1e9,
            faults=int(fields[_MAJOR_FAULTS]),
        )
    except (OSError, ValueError, IndexError):
        return None


def _memory_bytes(fields: Sequence[str]) -> int:
    return int(fields[_PAGES]) * os.sysconf("SC_PAGE_SIZE")


def _fields(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return []
