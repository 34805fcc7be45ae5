"""Runs docllm's own commands for Python programs, and reads the ledger beside them.

Loads, agents, exports and replays are child processes: they neither touch the calling program's
signals, threads and event loop nor end with its bugs. They end when the program does. No thread and
no process is left when a function here has returned.
"""

import asyncio
import os
import subprocess
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

import orjson

from docllm.agent.process import child_process
from docllm.producer.app import LedgerParts, opened_ledger
from docllm.schemas.errors import (
    ConfigError,
    DocllmError,
    InputError,
    UnreachableError,
    UnsafeStateError,
)
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import current_folder, load_config

POLL_S = 0.1
STOP_S = 90.0  # more than the time that a drain takes; then the program is killed
_SHOWN_BYTES = 4000  # of what a program says before it fails
_ERRORS: dict[int, type[DocllmError]] = {
    kind.exit_code: kind for kind in (InputError, ConfigError, UnreachableError, UnsafeStateError)
}

P = ParamSpec("P")
T = TypeVar("T")

# Set while an `a...` method runs that was cancelled: its thread must then end soon.
_cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as `--group` and `--config` name it."""

    name: str
    config_file: str | None

    def config(self) -> Config:
        """Return its settings. Raises ConfigError."""
        flags = {"config": self.config_file}
        return load_config(flags=flags, environ=os.environ, cwd=current_folder())

    def options(self) -> list[str]:
        """Return the options that every command takes."""
        file = [] if self.config_file is None else ["--config", self.config_file]
        return ["--group", self.name, *file]

    def read(self, work: Callable[[LedgerParts, Config], Awaitable[T]]) -> T:
        """Return what `work` reads from the ledger. Raises DocllmError."""
        config = self.config()

        async def run() -> T:
            async with opened_ledger(config) as parts:
                return await work(parts, config)

        return run_loop(run)

    def command(self, *arguments: str, ok: Sequence[int] = (0,)) -> dict[str, Any]:
        """Run a command with `--json`, and return what it prints.

        Raises the error of its exit code, unless that is in `ok`.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            child = self.start(*arguments, "--json", stdout=out, stderr=said)
            with stopped(child):
                while child.poll() is None:
                    require_not_cancelled()
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(POLL_S)
            out.seek(0)
            return _answer(child.returncode, out.read(), tail(said), ok)

    def start(
        self, command: str, *arguments: str, stdout: Any = None, stderr: Any = None
    ) -> "subprocess.Popen[bytes]":
        """Start a command, which the kernel kills when this program ends."""
        line = [*child_process.INTERPRETER, "docllm", command, *self.options(), *arguments]
        return child_process.start(line, stdout=stdout, stderr=stderr)

    def lines(self, *arguments: str) -> Iterator[bytes]:
        """Yield the lines that a command writes, as it writes them. Raises DocllmError."""
        with tempfile.TemporaryFile() as said:
            child = self.start(*arguments, stdout=subprocess.PIPE, stderr=said)
            with stopped(child), child.stdout or nullcontext(()) as lines:
                yield from lines
                child.wait()
            if child.returncode:
                raise error_of(child.returncode, tail(said))


def run_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Return what a coroutine function returns, whether or not an event loop runs here already."""

    async def run() -> T:
        task = asyncio.ensure_future(work())
        while not task.done():
            await asyncio.wait([task], timeout=POLL_S)
            if is_cancelled():
                task.cancel()
        return await task

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    stop = _cancelled.get() or threading.Event()
    token = _cancelled.set(stop)
    try:
        with ThreadPoolExecutor(1, "docllm") as thread:
            ended = thread.submit(copy_context().run, lambda: asyncio.run(run()))
            try:
                return ended.result()
            except BaseException:
                stop.set()
                raise
    finally:
        _cancelled.reset(token)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a blocking function returns; when this is cancelled, it ends first."""
    stop = threading.Event()
    token = _cancelled.set(stop)
    try:
        running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    finally:
        _cancelled.reset(token)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise


def is_cancelled() -> bool:
    """Return whether the `a...` method that runs here was cancelled."""
    stop = _cancelled.get()
    return stop is not None and stop.is_set()


def require_not_cancelled() -> None:
    """Raise CancelledError if the `a...` method that runs here was cancelled."""
    if is_cancelled():
        raise asyncio.CancelledError


@contextmanager
def stopped(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """End a program with the block: by SIGTERM, and by SIGKILL if that takes too long."""
    try:
        yield
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_S)
            except BaseException:
                child.kill()
                child.wait()
                raise


def tail(file: IO[bytes]) -> str:
    """Return the end of what a program said."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _SHOWN_BYTES))
    return file.read().decode("utf-8", "replace").strip()


def error_of(code: int, said: str) -> DocllmError:
    """Return the error for a program's exit code."""
    kind = _ERRORS.get(code, DocllmError)
    if said.startswith("usage: "):
        said = said[said.find("\nerror: ") + 1 :].partition("\nfor help: ")[0]
    return kind(said.removeprefix("error: ") or f"the command ended with {code}")


def _answer(code: int, out: bytes, said: str, ok: Sequence[int]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = orjson.loads(out)
    except orjson.JSONDecodeError:
        answer = {}
    if code not in ok or "error" in answer or not answer:
        raise error_of(code, str(answer.get("error", said)))
    return answer


def written(path: Path, lines: Iterator[bytes]) -> int:
    """Write lines to a file; return how many."""
    count = 0
    with path.open("wb") as file:
        for count, line in enumerate(lines, 1):  # noqa: B007 - the last one is returned
            file.write(line + b"\n")
    return count
