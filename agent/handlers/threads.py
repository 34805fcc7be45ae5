"""Runs plain functions in threads, so that a blocking function does not block the agent."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.context import BlockingContext, BlockingHandler
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.left_functions import LeftFunctions
from docllm.agent.handlers.served_calls import ServedCalls


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
    if not served.begin(call, partial(_give, answer)):
        answer.set_exception(AttemptEndedError())


def _give(answer: Future[Any], task: "asyncio.Task[Any]") -> None:
    """Give a call's end to the thread that waits for it."""
    if task.cancelled():
        answer.set_exception(AttemptEndedError())
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
