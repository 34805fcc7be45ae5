"""Reads the resource use of process sessions from /proc.

A session includes all processes that its leader started.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# Fields of /proc/.../stat after the command's name in brackets, which may hold blanks.
_STATE, _SESSION, _PAGES = 0, 3, 21


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


def _memory_bytes(fields: Sequence[str]) -> int:
    return int(fields[_PAGES]) * os.sysconf("SC_PAGE_SIZE")


def _fields(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return []
