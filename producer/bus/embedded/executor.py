"""The bus file on an executor of its own, for adapters that the event loop calls."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from docllm.producer.bus.embedded.file import LOCKED_S, BusFile, until_unlocked
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.clock import Clock, SystemClock
from docllm.schemas.runtime.executors import Executor, ThreadExecutor

T = TypeVar("T")


class BusExecutor:
    """Runs calls on the file one after another.

    A simulation passes an executor that runs the calls on the event loop.
    """

    def __init__(
        self, path: Path, *, executor: Executor | None, clock: Clock | None = None
    ) -> None:
        self._path = path
        self._threads = ThreadExecutor("embedded bus")
        self._executor = executor or self._threads
        self._clock = clock or SystemClock()
        self._file: BusFile | None = None

    async def run(self, call: Callable[[BusFile], T]) -> T:
        """Return the result of `call` on the file; the first call opens the file.

        Raises UnreachableError while the file is locked or its disk is full. Servers that are down
        raise the same error, and an agent's duties are retried then.
        """
        try:
            return await self._executor(lambda: self._call(call))
        except sqlite3.OperationalError as error:
            raise UnreachableError(
                f"the bus file {self._path} does not answer: {error}; "
                "check which process holds it, and the disk"
            ) from error

    def _call(self, call: Callable[[BusFile], T]) -> T:
        until_s = self._clock.now_s() + LOCKED_S
        return until_unlocked(lambda: call(self._open_file()), clock=self._clock, until_s=until_s)

    def _open_file(self) -> BusFile:
        if self._file is None:
            self._file = BusFile(self._path)
        return self._file

    async def close(self) -> None:
        """Close the file after the calls in progress. Safe to call twice."""
        file, self._file = self._file, None
        if file is not None:
            await self._executor(file.close)
        self._threads.close()
