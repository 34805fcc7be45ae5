"""Reads a thread's use from the kernel: CPU time, time without a processor, and paging."""

import os
from dataclasses import dataclass
from pathlib import Path

# Fields of /proc/.../stat after the command's name in brackets, which may hold blanks.
_MAJOR_FAULTS = 9
_TICKS = 11, 12  # in user mode and in the kernel
_TASKS = Path("/proc/self/task")


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
        stat = (folder / str(native_id) / "stat").read_text()
        schedule = (folder / str(native_id) / "schedstat").read_text().split()
        fields = stat.rpartition(")")[2].split()
        ticks = sum(int(fields[index]) for index in _TICKS)
        return ThreadUse(
            cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
            ready_s=int(schedule[1]) / 1e9,
            faults=int(fields[_MAJOR_FAULTS]),
        )
    except (OSError, ValueError, IndexError):
        return None
