"""A program of docllm as a child process, and what it used.

The kernel counts its CPU and memory.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
POLL_S = 0.02
_PDEATHSIG = 1  # of prctl


class BenchError(Exception):
    """A program did not do what the measurement needs; the text holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a program used from its start to its end.

    `cpu_s` is user and system time, `thread_s` that of its first thread, which in an agent is the
    event loop's; `memory_mb` is its largest memory.
    """

    cpu_s: float
    memory_mb: float
    thread_s: float = 0.0


class Child:
    """A running child process; it is killed at the end of its `with` block."""

    def __init__(self, *, pid: int, out: Path, name: str) -> None:
        self.pid = pid
        self.name = name
        self._out = out
        self._code: int | None = None
        self._used: Used | None = None
        self._thread_s = self._memory_mb = 0.0

    @property
    def said(self) -> str:
        """Return what it has printed so far."""
        return self._out.read_text(errors="replace")

    def ended(self) -> bool:
        """Return whether it has ended; note then what it used."""
        if self._used is None:
            self._thread_s = max(self._thread_s, _first_thread_s(self.pid))
            self._memory_mb = max(self._memory_mb, _memory_mb(self.pid))
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                cpu_s = usage.ru_utime + usage.ru_stime
                # The kernel's own largest value is at least that of the process which started it.
                memory_mb = self._memory_mb or usage.ru_maxrss / 1024
                self._used = Used(cpu_s, memory_mb, self._thread_s)
        return self._used is not None

    def wait(self, timeout_s: float) -> Used:
        """Wait for its end and return what it used.

        Raises BenchError when it fails or takes too long.
        """
        until(self.ended, timeout_s, f"the end of {self.name}: {self.said[-2000:]}")
        if self._code or self._used is None:
            raise BenchError(f"{self.name} ended with {self._code}: {self.said[-2000:]}")
        return self._used

    def stop(self, timeout_s: float = 60) -> Used:
        """Ask it to end, and return what it used."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it and wait for its end."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            until(self.ended, 10, f"the end of {self.name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Program(Child):
    """A running `python -m ...`.

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
        path = folder / f"{name}.out"
        start = [sys.executable, "-m"] if python is None else [python]
        with path.open("wb") as out:
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                [*_dies_with_parent(), *start, *arguments],
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        super().__init__(pid=self._child.pid, out=path, name=name)

    def ended(self) -> bool:
        """Return whether it has ended; note then what it used."""
        self._child.returncode = self._code if super().ended() else None
        return self._used is not None


class Fork(Child):
    """A function that runs in a copy of this process, and so needs no start.

    A return value other than None is its exit code. This process must have no threads.
    """

    def __init__(
        self,
        run: Callable[[], object],
        *,
        folder: Path,
        environ: Mapping[str, str],
        name: str,
    ) -> None:
        path = folder / f"{name}.out"
        path.touch()
        pid = os.fork()
        if pid == 0:
            os._exit(_as_program(run, folder, environ, path))
        super().__init__(pid=pid, out=path, name=name)


def _as_program(
    run: Callable[[], object], folder: Path, environ: Mapping[str, str], out: Path
) -> int:
    """Run a function as a program would: in its folder, with its variables and its output."""
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        os.environ.clear()
        os.environ.update(environ)
        written = os.open(out, os.O_WRONLY)
        os.dup2(written, 1)
        os.dup2(written, 2)
        run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else bool(ended.code)
    except BaseException:  # noqa: BLE001 - the copy must not go on with what its parent does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _first_thread_s(pid: int) -> float:
    """Return the CPU of a process's first thread, as far as the system tells."""
    try:
        stat = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    except OSError:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    """Return a process's largest memory up to now, as far as the system tells."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    largest = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(next(largest, "0")) / 1024


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
