"""Runs the functions of handlers and hooks in the agent: coroutines in tasks, others in threads.

Nothing can end a function that goes on after its attempt, so such functions are counted.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.context import BlockingContext, BlockingHandler, Context
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.served_calls import ServedCalls
from docllm.schemas.codes import Code
from docllm.schemas.text.untrusted import ContainedError

log = logging.getLogger(__name__)

# How long a cancelled coroutine may clean up before its attempt ends without it. It is less than a
# drain waits for its cancelled attempts.
CLEAN_UP_S = 3.0


class NoRoomError(Exception):
    """An attempt did not begin, because too many functions of handlers never end."""


class LeftFunctions:
    """Counts the threads and coroutines that nothing can end, each until its function returns.

    While there are `most`, no attempt begins and `failed` is called with the reason.
    """

    def __init__(self, *, most: int, failed: Callable[[str], None]) -> None:
        self._most = most
        self._failed = failed
        self._left: set[object] = set()

    def require_room(self) -> None:
        """Raise NoRoomError if there are too many."""
        if len(self._left) >= self._most:
            self._failed(
                f"{len(self._left)} functions of handlers go on though their attempts have ended, "
                "so no other one may begin; give what they call a time limit, or let the type run "
                'in processes, which can be ended: run = "process"'
            )
            raise NoRoomError

    def add(self, runs_in: object, context: AttemptContext) -> None:
        """Count a thread or an asyncio task whose attempt has ended, and log it."""
        self._left.add(runs_in)
        log.warning(
            "%s: its attempt has ended, but its function goes on",
            context.name,
            extra={"code": Code.HANDLER_GOES_ON},
        )

    def discard(self, runs_in: object) -> None:
        """Count it no more, if it was counted: its function has returned."""
        self._left.discard(runs_in)


@dataclass(slots=True, kw_only=True)
class HandlerCoroutines:
    """Runs coroutine functions, each in an asyncio task of its own.

    asyncio cannot stop a coroutine that ignores its cancellation: it is left over until it returns.
    """

    left: LeftFunctions
    clean_up_s: float = CLEAN_UP_S

    async def run(
        self, function: Callable[[Any], Coroutine[Any, Any, Any]], context: AttemptContext
    ) -> Any:
        """Return the result of a coroutine function, or raise its error. Raises NoRoomError."""
        self.left.require_room()
        context.has_begun = True
        running = asyncio.get_running_loop().create_task(function(Context(context)))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            running.cancel()
            try:
                await asyncio.wait([running], timeout=self.clean_up_s)
            finally:
                if not running.done():
                    self.left.add(running, context)
                    running.add_done_callback(self._returned)
            if not running.done():
                raise
        try:
            return running.result()
        except ContainedError as error:
            # A task may not end by SystemExit or KeyboardInterrupt; an attempt may fail by them.
            raise error.__cause__ or error from None

    def _returned(self, running: "asyncio.Task[Any]") -> None:
        self.left.discard(running)
        if not running.cancelled():
            running.exception()  # nobody else asks for it, which asyncio would log


class HandlerThreads:
    """Runs plain functions in threads, one thread for each running attempt; threads are reused.

    Python cannot stop a thread: after its attempt has ended, a thread is left over until its
    function returns. The threads are daemons, so the process can exit.
    """

    def __init__(self, *, left: LeftFunctions) -> None:
        self._left = left
        self._idle: list[_Thread] = []

    async def run(self, function: BlockingHandler, context: AttemptContext) -> Any:
        """Return the result of a function, or raise its error.

        Raises NoRoomError.
        """
        self._left.require_room()
        loop = asyncio.get_running_loop()
        thread = self._idle.pop() if self._idle else _Thread()
        served = ServedCalls()
        ended: asyncio.Future[_ThreadResult] = loop.create_future()
        blocking = BlockingContext(context, wait=partial(_wait, served, loop))
        # The context variables are the attempt's, as those of an async handler are.
        call = partial(contextvars.copy_context().run, _checked, function, blocking)

        def note(result: _ThreadResult) -> None:
            loop.call_soon_threadsafe(self._note, thread, ended, result)

        context.has_begun = True
        thread.give(_Job(call, note))
        try:
            result = await ended
        except asyncio.CancelledError:
            if ended.cancelled():  # otherwise the function has ended, too late for its attempt
                self._left.add(thread, context)
            raise
        finally:
            await served.end()
        if result.error is not None:
            raise result.error
        return result.value

    def _note(
        self, thread: "_Thread", ended: "asyncio.Future[_ThreadResult]", result: "_ThreadResult"
    ) -> None:
        """Note that a function has ended, perhaps long after its attempt."""
        self._left.discard(thread)
        self._idle.append(thread)
        if not ended.done():
            ended.set_result(result)


@dataclass(frozen=True, slots=True)
class _ThreadResult:
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    call: Callable[[], Any]
    ended: Callable[[_ThreadResult], None]


class _Thread(threading.Thread):
    """A thread that runs one job after another. It does not keep the process from its exit."""

    def __init__(self) -> None:
        super().__init__(name="handler", daemon=True)
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self.start()

    def give(self, job: _Job) -> None:
        """Let the thread run a job after those that it has."""
        self._jobs.put(job)

    def run(self) -> None:
        """Run the jobs."""
        while True:
            job = self._jobs.get()
            result = _run(job.call)
            with suppress(RuntimeError):  # the loop is closed, and the process ends
                job.ended(result)
            del job, result  # the next job may come late


def _run(call: Callable[[], Any]) -> _ThreadResult:
    try:
        return _ThreadResult(call())
    except BaseException as error:  # noqa: BLE001 - the attempt raises it again
        return _ThreadResult(error=error)


def _checked(function: BlockingHandler, context: BlockingContext) -> Any:
    """Return the function's result; refuse a coroutine or another awaitable."""
    result = function(context)
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result):
        raise TypeError("the handler returned something to await; define it as: async def")
    return result


def _wait(served: ServedCalls, loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> Any:
    """Return the result of a call, from a thread. Raises its error and AttemptEndedError."""
    answer: Future[Any] = Future()
    try:
        loop.call_soon_threadsafe(_begin, served, call, answer)
    except RuntimeError:  # the loop is closed
        raise AttemptEndedError from None
    return answer.result()


def _begin(served: ServedCalls, call: Callable[[], Any], answer: Future[Any]) -> None:
    if served.begin(call, partial(_give, answer)) is None:
        answer.set_exception(AttemptEndedError())


def _give(answer: Future[Any], task: "asyncio.Task[Any]") -> None:
    """Give a call's end to the thread that waits for it."""
    if task.cancelled():
        answer.set_exception(AttemptEndedError())
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
