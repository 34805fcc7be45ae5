"""Writes records to the embedded bus, in short transactions on an executor of its own."""

import random
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from docllm.producer.bus.embedded import log
from docllm.producer.bus.embedded.executor import BusExecutor
from docllm.producer.bus.embedded.file import LOCKED_S, BusFile, until_unlocked
from docllm.producer.ports import Refusal
from docllm.schemas.runtime.clock import Clock, SystemClock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.record.envelope import Outgoing


class EmbeddedPublisher:
    """Publisher on the bus file."""

    def __init__(
        self, path: Path, *, clock: Clock | None = None, executor: Executor | None = None
    ) -> None:
        self._bus = BusExecutor(path, executor=executor)
        self._clock = clock or SystemClock()
        self._rng = random.Random()  # noqa: S311 - spreads records without a key, protects nothing
        self._waiting = 0

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record in order, None when it is durable, or why it is not."""
        until_s = self._clock.now_s() + LOCKED_S
        self._waiting += len(records)
        try:
            return [
                answer
                for chunk in log.chunks(records)
                for answer in await self._append(records[chunk], until_s)
            ]
        finally:
            self._waiting -= len(records)

    async def _append(self, records: Sequence[Outgoing], until_s: float) -> list[Refusal | None]:
        return await self._bus.run(partial(self._append_now, records=records, until_s=until_s))

    def _append_now(
        self, file: BusFile, *, records: Sequence[Outgoing], until_s: float
    ) -> list[Refusal | None]:
        reason = f"the bus did not take it within {LOCKED_S:.0f} s"
        if self._clock.now_s() <= until_s:  # the chunks before this one may have waited
            append = partial(log.append, file, records, self._rng)
            try:
                return until_unlocked(append, clock=self._clock, until_s=until_s)
            except sqlite3.OperationalError as error:
                reason = f"the bus did not take it: {error}"
        return [Refusal(reason, permanent=False)] * len(records)

    def waiting(self) -> int:
        """Return how many records wait to be written."""
        return self._waiting

    async def close(self) -> None:
        """Write the waiting records and close the file."""
        await self._bus.close()
