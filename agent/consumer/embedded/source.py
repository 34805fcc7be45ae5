"""The embedded bus as a source: connects the event loop and the reader's thread.

The loop sends requests to the reader's thread, and the reader sends events to the loop. There is
one queue for each direction, so no lock is needed and the order is kept.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from docllm.agent.consumer.embedded.reader import IDLE_S, EmbeddedReader
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import AtRest, Event, Partition, SourceFailed
from docllm.producer.bus.embedded.file import LOCKED_S, is_locked
from docllm.schemas.runtime.clock import Clock

T = TypeVar("T")
_TROUBLE_S = 1.0
LEAVE_S = 5.0


class SteppedSource:
    """A source whose caller makes its passes: `step` until it returns None.

    A simulation drives it on a virtual clock.
    """

    def __init__(
        self,
        *,
        bus_path: Path,
        topics: Sequence[str],
        group_id: str,
        topic_ids: StoredIdsReader,
        clock: Clock,
    ) -> None:
        self._open = partial(
            EmbeddedReader,
            bus_path=bus_path,
            topics=tuple(topics),
            group_id=group_id,
            topic_ids=topic_ids,
            clock=clock,
            deliver=self._post,
        )
        self._reader: EmbeddedReader | None = None
        self._requests: queue.SimpleQueue[Callable[[EmbeddedReader], None]] = queue.SimpleQueue()
        self._unanswered: dict[asyncio.Future[Any], Any] = {}
        self._leaving: asyncio.Future[None] | None = None
        self._ended = True
        # By topic; written by the reader's side, read by the loop's.
        self._lag: Mapping[str, int] = {}
        self._last_pass = False
        self._in_trouble = False
        self._trouble_since_s: float | None = None
        self._clock = clock

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group with the first pass; call `deliver` in the running loop's thread."""
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        self._ended = False

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let `watermark` be committed within a second."""
        self._requests.put(lambda reader: reader.partitions.mark(partition, watermark))

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of partitions that must not be read."""
        paused = frozenset(partitions)
        self._requests.put(lambda reader: reader.partitions.pause(paused))

    async def commit(self) -> None:
        """Commit the marked offsets now; return when that is done or has failed."""
        await self._ask(EmbeddedReader.commit, None)

    async def at_rest(self) -> AtRest:
        """Return how far the assigned partitions are from their ends.

        The answer is "not joined" once the source has ended.
        """
        return await self._ask(EmbeddedReader.at_rest, AtRest(joined=False, lag=0))

    def lag(self) -> Mapping[str, int]:
        """Return how many records are above the watermarks, by topic, since the last pass."""
        return self._lag

    async def leave(self) -> None:
        """Commit the marked offsets, leave the group, deliver Revoked, close.

        A second call waits for the first. If the bus file does not answer for LEAVE_S, this returns
        all the same, and nothing more is delivered; the others take over once this process ends.
        """
        if self._ended:
            return
        if self._leaving is None:
            self._leaving = self._ask(self._leave, None)
        await asyncio.wait([self._leaving], timeout=LEAVE_S)
        self._end()

    def step(self, wait_s: float = 0.0) -> float | None:
        """Wait up to `wait_s` for a request, carry out all requests, then make one pass.

        Returns the seconds until the next pass, or None after the last pass.
        """
        try:
            pause_s = self._pass(wait_s)
        except (sqlite3.OperationalError, OSError) as error:
            pause_s = self._report_trouble(error)
            if self._reader is None and self._leaving is not None:
                self._last_pass = True  # it has never joined, so there is nothing to leave
                self._call(self._end)
        except Exception as error:  # noqa: BLE001 - the loop must learn that nothing more comes
            self._fail(error)
            return None
        return None if self._last_pass else pause_s

    # ---- on the reader's side

    def _pass(self, wait_s: float) -> float:
        if self._reader is None:
            self._reader = self._open()
        self._serve_requests(self._reader, wait_s)
        if self._last_pass:
            return 0.0
        pause_s = self._reader.step()
        self._lag = self._reader.partitions.lag
        self._in_trouble, self._trouble_since_s = False, None
        return pause_s

    def _serve_requests(self, reader: EmbeddedReader, wait_s: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._requests.get(timeout=wait_s)(reader)
            while not self._last_pass:
                self._requests.get_nowait()(reader)

    def _leave(self, reader: EmbeddedReader) -> None:
        self._last_pass = True
        try:
            reader.leave()
        finally:
            self._call(self._end)

    def _report_trouble(self, error: sqlite3.OperationalError | OSError) -> float:
        """Report once that the file is locked, full or broken, or that a lock cannot be opened.

        The source tries again until the file answers. A locked file is reported after LOCKED_S.
        """
        now_s = self._clock.now_s()
        if self._trouble_since_s is None:
            self._trouble_since_s = now_s
        if is_locked(error) and now_s - self._trouble_since_s < LOCKED_S:
            return IDLE_S  # this pass has already waited
        if not self._in_trouble:
            self._in_trouble = True
            self._post(SourceFailed(f"the bus does not answer: {error}"))
        return _TROUBLE_S

    def _fail(self, error: Exception) -> None:
        if self._reader is not None and not self._last_pass:
            self._reader.close()
        self._post(SourceFailed(f"{type(error).__name__}: {error}", fatal=True))
        self._call(self._end)

    def _post(self, event: Event) -> None:
        self._call(self._hand_over, event)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        """Call a function on the loop's side; a closed loop needs no notice."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # ---- on the loop's side

    def _hand_over(self, event: Event) -> None:
        try:
            if not self._ended:
                self._deliver(event)
        finally:
            if isinstance(event, list):
                self._requests.put(EmbeddedReader.taken)

    def _ask(self, question: Callable[[EmbeddedReader], T], otherwise: T) -> "asyncio.Future[T]":
        """Put a question to the reader.

        The answer is `otherwise` when the question fails or the source ends first.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._ended:
            future.set_result(otherwise)
            return future

        def answer(reader: EmbeddedReader) -> None:
            result = otherwise
            try:
                result = question(reader)
            finally:
                self._call(_resolve, future, result)

        self._unanswered[future] = otherwise
        future.add_done_callback(self._unanswered.pop)
        self._requests.put(answer)
        return future

    def _end(self) -> None:
        self._ended = True
        for future, otherwise in tuple(self._unanswered.items()):
            _resolve(future, otherwise)


def _resolve(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


class EmbeddedSource(SteppedSource):
    """A source with a thread of its own, which waits for wishes between its passes."""

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and begin to read."""
        super().start(deliver)
        self._thread = threading.Thread(target=self._run, name="embedded bus", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause_s: float | None = 0.0
        while pause_s is not None:
            pause_s = self.step(pause_s)
