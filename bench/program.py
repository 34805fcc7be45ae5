"""A program of docllm as a child process, and what it used.

The kernel counts its CPU and memory.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
POLL_S = 0.02


class BenchError(Exception):
    """A program did not do what the measurement needs; the text holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a program used from its start to its end.

    `cpu_s` is user and system time; `memory_mb` is its largest memory.
    """

    cpu_s: float
    memory_mb: float


class Program:
    """A running `python -m ...`; it is killed at the end of its `with` block.

    `python` names another interpreter, whose arguments are then given whole.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        environ: Mapping[str, str],
        name: str,
        python: str | None = None,
    ) -> None:
        self.name = name
        self._out = folder / f"{name}.out"
        self._used: Used | None = None
        start = [sys.executable, "-m"] if python is None else [python]
        command = [*_dies_with_parent(), *start, *arguments]
        with self._out.open("wb") as out:
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                command,
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._child.pid

    @property
    def said(self) -> str:
        """Return what it has printed so far."""
        return self._out.read_text(errors="replace")

    def ended(self) -> bool:
        """Return whether it has ended; note then what it used."""
        if self._used is None:
            pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
            if pid:
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self._used = Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        return self._used is not None

    def wait(self, timeout_s: float) -> Used:
        """Wait for its end and return what it used.

        Raises BenchError when it fails or takes too long.
        """
        until(self.ended, timeout_s, f"the end of {self.name}: {self.said[-2000:]}")
        if self._child.returncode or self._used is None:
            raise BenchError(
                f"{self.name} ended with {self._child.returncode}: {self.said[-2000:]}"
            )
        return self._used

    def stop(self, timeout_s: float = 60) -> Used:
        """Ask it to end, and return what it used."""
        self._child.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it and wait for its end."""
        if not self.ended():
            self._child.kill()
            until(self.ended, 10, f"the end of {self.name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def until(true: Callable[[], object], timeout_s: float, what: str) -> None:
    """Return once `true()` is; raise BenchError when that takes too long."""
    end_s = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end_s:
            raise BenchError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(POLL_S)


def _dies_with_parent() -> list[str]:
    path = shutil.which("setpriv") if sys.platform == "linux" else None
    return [path, "--pdeathsig", "KILL", "--"] if path else []
