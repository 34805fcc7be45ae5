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
from functools import partial
from queue import SimpleQueue
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.context import BlockingContext, BlockingHandler, Context
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.registry import RunFunction, is_async
from docllm.agent.handlers.served_calls import ServedCalls
from docllm.schemas.codes import Code
from docllm.schemas.text.untrusted import ContainedError

log = logging.getLogger(__name__)

# How long a cancelled coroutine may clean up before its attempt ends without it. It is less than a
# drain waits for its cancelled attempts.
CLEAN_UP_S = 3.0


class NoRoomError(Exception):
    """An attempt did not begin, because too many functions of handlers never end."""


class HandlerFunctions:
    """Runs functions, each in an asyncio task or a thread of its own; idle threads are reused.

    Nothing can stop a thread, or a coroutine that ignores its cancellation: after its attempt, it
    is left over until its function returns. While there are `most_left` of these, no attempt begins
    and `failed` is called with the reason. The threads are daemons, so the process can exit.
    """

    def __init__(
        self, *, most_left: int, failed: Callable[[str], None], clean_up_s: float = CLEAN_UP_S
    ) -> None:
        self._most_left = most_left
        self._failed = failed
        self._clean_up_s = clean_up_s
        self._left: set[object] = set()  # the threads and asyncio tasks
        self._idle: list[_Thread] = []

    def runner(self, function: Callable[..., Any]) -> RunFunction:
        """Return what runs a function as `run_async` or `run_blocking` does."""
        return self.run_async if is_async(function) else self.run_blocking

    async def run_async(
        self, function: Callable[[Any], Coroutine[Any, Any, Any]], context: AttemptContext
    ) -> Any:
        """Return the result of a coroutine function, or raise its error. Raises NoRoomError."""
        self._require_room()
        context.has_begun = True
        running = asyncio.get_running_loop().create_task(function(Context(context)))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            running.cancel()
            try:
                await asyncio.wait([running], timeout=self._clean_up_s)
            finally:
                if not running.done():
                    self._leave(running, context)
                    running.add_done_callback(self._returned)
            if not running.done():
                raise
        try:
            return running.result()
        except ContainedError as error:
            # A task may not end by SystemExit or KeyboardInterrupt; an attempt may fail by them.
            raise error.__cause__ or error from None

    async def run_blocking(self, function: BlockingHandler, context: AttemptContext) -> Any:
        """Return the result of a plain function, or raise its error. Raises NoRoomError."""
        self._require_room()
        loop = asyncio.get_running_loop()
        thread = self._idle.pop() if self._idle else _Thread()
        served = ServedCalls()
        ended: asyncio.Future[Future[Any]] = loop.create_future()
        blocking = BlockingContext(context, wait=partial(_wait, served, loop))
        # The context variables are the attempt's, as those of an async handler are.
        call = partial(contextvars.copy_context().run, _checked, function, blocking)

        def job() -> None:
            result = _result_of(call)
            with suppress(RuntimeError):  # the loop is closed, and the process ends
                loop.call_soon_threadsafe(self._note, thread, ended, result)

        context.has_begun = True
        thread.jobs.put(job)
        try:
            result = await ended
        except asyncio.CancelledError:
            if ended.cancelled():  # otherwise the function has ended, too late for its attempt
                self._leave(thread, context)
            raise
        finally:
            await served.end()
        if (error := result.exception()) is not None:
            raise error
        return result.result()

    def _require_room(self) -> None:
        """Raise NoRoomError if too many functions go on."""
        if len(self._left) >= self._most_left:
            self._failed(
                f"{len(self._left)} functions of handlers go on though their attempts have ended, "
                "so no other one may begin; give what they call a time limit, or let the type run "
                'in processes, which can be ended: run = "process"'
            )
            raise NoRoomError

    def _leave(self, runs_in: object, context: AttemptContext) -> None:
        """Count a thread or an asyncio task whose attempt has ended, and log it."""
        self._left.add(runs_in)
        log.warning(
            "%s: its attempt has ended, but its function goes on",
            context.name,
            extra={"code": Code.HANDLER_GOES_ON},
        )

    def _returned(self, running: "asyncio.Task[Any]") -> None:
        self._left.discard(running)
        if not running.cancelled():
            running.exception()  # nobody else asks for it, which asyncio would log

    def _note(
        self, thread: "_Thread", ended: "asyncio.Future[Future[Any]]", result: "Future[Any]"
    ) -> None:
        """Note that a plain function has ended, perhaps long after its attempt."""
        self._left.discard(thread)
        self._idle.append(thread)
        if not ended.done():
            ended.set_result(result)


class _Thread(threading.Thread):
    """A thread that runs one job after another. It does not keep the process from its exit."""

    def __init__(self) -> None:
        super().__init__(name="handler", daemon=True)
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Run the jobs."""
        while True:
            job = self.jobs.get()
            job()
            del job  # the next one may come late


def _result_of(call: Callable[[], Any]) -> "Future[Any]":
    """Return how a call has ended."""
    result: Future[Any] = Future()
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the attempt raises it again
        result.set_exception(error)
    return result


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
