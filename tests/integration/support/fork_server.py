"""Starts programs as forks of one process that has loaded docllm's code.

A program needs half a second of a core to load its code, and the tests start hundreds of programs.
A fork has the code, and runs the main module as `python -m` does: with arguments, environment,
folder, files and session of its own. It ends as an interpreter does, but for the destruction of
modules. With DOCLLM_TEST_LONG (`make proof`) each program is started anew.
"""

import atexit
import ctypes
import gc
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, reload
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from docllm.schemas.runtime import crash

_PR_SET_PDEATHSIG = 1
# What agents and commands load when they run. Nothing here may start a thread.
_LOADED = (
    "docllm.agent.app",
    "docllm.agent.cli.main",
    "docllm.agent.cli.parser",
    "docllm.agent.consumer.embedded",
    "docllm.agent.consumer.kafka",
    "docllm.agent.quota.redis_grants",
    "docllm.agent.llm.rehearsal.service",
    "docllm.agent.routes.sharing.redis_board",
    "docllm.producer.bus.embedded",
    "docllm.producer.bus.kafka",
    "docllm.producer.checks",
    "docllm.producer.cli",
    "docllm.producer.cli.load",
    "docllm.producer.input",
    "docllm.producer.loading",
    "docllm.producer.tracing.opening",
    "docllm.schemas.ledger.migrations.upgrade",
)
_PROGRAM = f"from {__name__} import main; main()"


@dataclass(frozen=True, slots=True)
class Start:
    """What a program is started with. `arguments` begins with the name of its main module."""

    arguments: Sequence[str]
    folder: Path
    environ: Mapping[str, str]
    out: Path
    err: Path


class ForkServer:
    """A process that has docllm's code and makes programs of its forks; they end with it.

    `environ` is its environment. Any thread may ask it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                env=self._environ,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Return whether this environment differs by settings alone.

        The interpreter and libraries read other variables when they are loaded.
        """
        names = {name for name, _ in environ.items() ^ self._environ.items()}
        return all(name.startswith("DOCLLM_") for name in names)

    def start(self, start: Start) -> "Fork":
        """Start a program."""
        for path in (start.out, start.err):
            path.write_bytes(b"")
        return Fork(self, self.ask(start))

    def ask(self, question: Start | int) -> Any:
        """Return a new program's process number, or the exit code of a process, None if it runs."""
        with self._lock:
            self._ours.send(question)
            return self._ours.recv()

    def close(self) -> None:
        """End it with its programs."""
        self._ours.close()
        self._process.wait()


class Fork:
    """A program of a fork server, with the methods of Popen. Any thread may call them."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._lock = threading.Lock()  # the server can give an exit code once
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with self._lock:
            if self._code is None:
                self._code = self._server.ask(self.pid)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code. Raises TimeoutExpired if it still runs after `timeout` seconds."""
        while (code := self.poll()) is None:
            try:
                process = os.pidfd_open(self.pid)
            except ProcessLookupError:  # another thread has its exit code
                continue
            try:
                if not wait([process], timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            finally:
                os.close(process)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it if it runs."""
        self.send_signal(signal.SIGKILL)


def _serve(connection: Connection) -> Start | None:
    """Answer until the other end closes; in a fork, return what it has to start."""
    _load()
    with connection, suppress(EOFError):
        while True:
            question = connection.recv()
            if not isinstance(question, Start):
                connection.send(_code(question))
            elif pid := os.fork():
                connection.send(pid)
            else:
                return question
    return None


def _load() -> None:
    for name in _LOADED:
        package = import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."):
            import_module(module.name)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("a module starts a thread while it is loaded: no fork would have it")
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page


def _code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _run(start: Start, parent: int) -> None:
    """Become the program in this fork, and end as it ends."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the server ended before the kernel knew
        os._exit(1)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environ)
    reload(crash)  # it reads the environment when it is loaded
    for number, path in enumerate((Path(os.devnull), start.out, start.err)):
        file = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    module, *sys.argv[1:] = start.arguments
    sys.path[0] = str(start.folder)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        _leave(end.code)


def _leave(code: int) -> NoReturn:
    """Wait for threads, call the exit functions, and end without the destruction of modules.

    It would write to every page that this process has in common with the server, and so copy them
    all: that takes more CPU than most commands.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve, and in each fork run its program."""
    own = os.getpid()
    if (start := _serve(Connection(int(sys.argv[1])))) is not None:
        _run(start, own)
