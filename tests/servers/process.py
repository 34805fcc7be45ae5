"""A server as a child process: start, stop, kill, freeze, thaw, restart.

It knows processes and nothing of any protocol.
"""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self


class ServerMissingError(Exception):
    """A program or library of the server is not on this machine; the text says how to get it."""


class ServerFailedError(Exception):
    """The server is on this machine and did not start; the text holds the end of its log."""


STILL_S = 30.0
# A server starts, or a tool of it runs, within this time even on a machine with much other load.
START_S = 240.0
# Notes of the ports that processes of tests were given, each with the id of its process.
PORTS = Path(tempfile.gettempdir(), f"docllm-test-ports-{os.getuid()}")


def free_port() -> int:
    """Return a loopback port on which nothing listens, and that no living process was given.

    The port is below the ephemeral range, so the kernel gives it to no outgoing connection. A
    client that keeps connecting to a stopped server's ephemeral port ends up connected to itself,
    and the server cannot come back to that port.
    """
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> Sequence[int]:
    """Return `count` ports that follow each other, each as `free_port` returns one."""
    PORTS.mkdir(exist_ok=True)
    with (PORTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            first = random.SystemRandom().randrange(20_000, 30_000)
            ports = range(first, first + count)
            if not any(_is_given(port) or listens(port) for port in ports):
                for port in ports:
                    (PORTS / str(port)).write_text(str(os.getpid()))
                return ports


def _is_given(port: int) -> bool:
    try:
        process_id = int((PORTS / str(port)).read_text())
    except (FileNotFoundError, ValueError):
        return False
    return Path(f"/proc/{process_id}").exists()


def program(name: str, *, package: str) -> str:
    """Return the path of an installed program.

    Raises ServerMissingError, which names the program's package.
    """
    path = shutil.which(
        name, path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"
    ) or shutil.which(name)
    if path is None:
        raise ServerMissingError(
            f"{name} (Debian package {package}) is not installed; run: python -m "
            "tests.servers install"
        )
    return path


class Server(ABC):
    """One server with its files in `folder`. It dies with this process, however this ends.

    A subclass says how to lay out the files (`prepare`), what to run (`command`) and when it
    answers (`ready`).
    """

    name: str

    def __init__(self, *, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # The parent-death signal follows the thread that started the child, so that thread must
        # live as long as this object.
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self.name)

    @abstractmethod
    def prepare(self) -> None:
        """Lay out the files before a start; a second call must keep the existing files.

        Raises ServerMissingError.
        """

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program and its arguments; it must stay in the foreground."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether the server answers a request of its own protocol now."""

    @property
    def log(self) -> Path:
        """Return the file with the output of the server and its set-up."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Return the process id; raise ServerFailedError when the server does not run."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailedError(f"{self.name} does not run{self._log_end()}")
        return self._process.pid

    def start(self, *, timeout_s: float = START_S) -> None:
        """Start on the same port and files as before, and return when the server answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self._process = self._spawner.submit(self._spawn, self.command()).result()
        self._until(self.ready, timeout_s)

    def stop(self, *, timeout_s: float = 30.0) -> None:
        """End the server in order.

        A frozen server is woken; a server that does not end in time is killed.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the server (SIGKILL) and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, *, timeout_s: float = START_S) -> None:
        """Stop the server if it runs, and start it again on the same port and files."""
        self.stop()
        self.start(timeout_s=timeout_s)

    def freeze(self) -> None:
        """Halt the server (SIGSTOP) and return when all its threads stand still.

        Its connections stay open, but nothing answers. On a busy machine a thread may answer one
        more statement before it stands still.
        """
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + STILL_S
        while not all(state == "T" for state in _states(self.pid)):
            if time.monotonic() > end:
                raise ServerFailedError(f"{self.name} did not stand still within {STILL_S:.0f} s")
            time.sleep(0.005)

    def thaw(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server for good; the files stay."""
        self.stop()
        self._spawner.shutdown()

    def run(self, arguments: Sequence[str], *, stdin: str = "", timeout_s: float = START_S) -> None:
        """Run a set-up program to its end, with its output in the log.

        Raises ServerFailedError when the program fails.
        """
        with self.log.open("ab") as log:
            done = subprocess.run(
                arguments,
                input=stdin.encode(),
                stdout=log,
                stderr=log,
                timeout=timeout_s,
                check=False,
            )
        if done.returncode != 0:
            raise ServerFailedError(
                f"{Path(arguments[0]).name} ended with {done.returncode}{self._log_end()}"
            )

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # The server gets a session of its own, so that Ctrl-C reaches the tests and not the servers
        # under them.
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*_die_with_parent(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > end:
                self.kill()
                raise ServerFailedError(
                    f"{self.name} did not answer within {timeout_s:.0f} s{self._log_end()}"
                )
            _ = self.pid
            time.sleep(0.05)

    def _signal(self, number: signal.Signals) -> None:
        _ = self.pid
        if self._process is not None:
            self._process.send_signal(number)

    def _log_end(self) -> str:
        if not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return f"; the end of {self.log}:\n" + "\n".join(lines)


def listens(port: int) -> bool:
    """Return whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _states(pid: int) -> Iterator[str]:
    """Yield the state of each thread of a process; nothing where the system does not tell."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            yield stat.read_text().rpartition(")")[2].split()[0]


def _die_with_parent() -> list[str]:
    path = shutil.which("setpriv") if sys.platform == "linux" else None
    return [path, "--pdeathsig", "KILL", "--"] if path else []
