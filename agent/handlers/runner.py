"""Runs the handler of a task's type, and turns whatever it does into an outcome.

Only an end from outside passes through: a cancellation of the attempt, the close of its coroutine,
or a person's Ctrl-C. Anything else that a handler raises is its own counted failure, even
`sys.exit`, a panic of a native library, or an error without a message.
"""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from agent.deadline import HANDLER_GRACE_S
from agent.handlers.chat import chat
from agent.handlers.context import (
    Answer,
    Attempt,
    CallRefusedError,
    Context,
    Handler,
    LeaseLostError,
    NoTurnError,
    Tools,
)
from agent.handlers.decisions import GiveUpError, TryAgainError
from agent.handlers.documents import DocumentError
from agent.handlers.threads import NoThreadError
from agent.judge import Action, action_of, one_line
from agent.outcome import VALUE, VALUE_ZLIB, Dead, Failure, Outcome, Released, Spent, Succeeded
from agent.process.containment import current_task, enter_handler, is_to_end, leaf_errors
from agent.process.frames import frames_of_error, place_of, traceback_text
from schemas.task.failures import Disposition, ErrorClass
from schemas.task.line import parse_again
from schemas.task.untrusted import contained, describe_error, described

_PACK_FROM_BYTES = 4 << 10
_ABANDONED = "something that the handler waited for was cancelled"


class Handlers:
    """All handlers of an agent, by task type; a type without a handler is a chat completion."""

    def __init__(self, *, tools: Tools, by_type: Mapping[str, Handler]) -> None:
        self.apply(tools=tools, by_type=by_type)

    def apply(self, *, tools: Tools, by_type: Mapping[str, Handler]) -> None:
        """Use these from the next attempt on; those that run keep what they began with."""
        self._tools = tools
        self._by_type = dict(by_type)

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the handler of the task's type; return how the attempt ended."""
        try:
            with contained():
                task = parse_again(attempt.value)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - an unreadable task must not harm other tasks
            text = one_line(f"the record is not a task line: {described(error)}")
            failure = Failure(ErrorClass.UNDECODABLE, text)
            return Dead(failure, Spent(), Disposition.UNDECODABLE)
        context = Context(task=task, attempt=attempt, tools=self._tools)
        return await self._handle(context, attempt.left_s)

    async def _handle(self, context: Context, left_s: float) -> Outcome:
        handler = self._by_type.get(context.task.type, chat)
        own_s = context.rules.time_limit_s or self._tools.usual_limit_s
        limit = asyncio.timeout(min(left_s + HANDLER_GRACE_S, own_s))
        attempt = current_task()
        enter_handler(attempt)
        try:
            async with limit:
                return _outcome(await handler(context), context)
        except BaseException as error:
            if is_to_end(error, attempt):
                raise
            self._tools.failed(error)
            return self._raised(error, context, timed_out=limit.expired())

    def _raised(self, raised: BaseException, context: Context, *, timed_out: bool) -> Outcome:
        """Return the outcome of an attempt whose handler raised; log an error of its code."""
        error = _cause(raised)
        decided = _decided(error, context)
        if decided is not None:
            return decided
        text = one_line(
            _timeout_text(context.rules.time_limit_s) if timed_out else _description(error)
        )
        given_up = not timed_out and action_of(error, context.rules) is Action.GIVE_UP
        error_class = ErrorClass.HANDLER_GAVE_UP if given_up else ErrorClass.HANDLER
        # An error that a handler put into a group may never have been raised itself.
        located = raised if error.__traceback__ is None else error
        failure = Failure(error_class, text, traceback_text(located))
        self._tools.errors.note(
            task=context.name,
            task_type=context.task.type,
            failure=failure,
            place=place_of(frames_of_error(located)),
            now_s=self._tools.clock.now_s(),
        )
        return context.failed(failure)


def _outcome(result: Any, context: Context) -> Outcome:
    """Return the outcome of what a handler returned; a JSON value is stored as the result."""
    outcome = _end(result, context)
    if context.follow_ups and isinstance(outcome, Succeeded):
        return replace(outcome, follow_ups=context.follow_ups)
    return outcome


def _end(result: Any, context: Context) -> Outcome:
    if isinstance(result, Answer):
        is_last = result.outcome.spent is context.spent
        return result.outcome if is_last else replace(result.outcome, spent=context.spent)
    if isinstance(result, Succeeded | Dead):
        is_complete = result.spent.called or not context.spent.called
        return result if is_complete else replace(result, spent=context.spent)
    if isinstance(result, Outcome):
        raise TypeError(
            f"a handler does not return {type(result).__name__}; raise TryAgainError or GiveUpError"
        )
    body = orjson.dumps(result)
    if len(body) < _PACK_FROM_BYTES:
        return Succeeded(body, VALUE, context.spent)
    return Succeeded(zlib.compress(body, 1), VALUE_ZLIB, context.spent)


def _decided(error: BaseException, context: Context) -> Outcome | None:
    """Return the outcome that an error of docllm's own stands for; None if it is another error."""
    if isinstance(error, CallRefusedError):
        return error.outcome
    if isinstance(error, LeaseLostError | NoTurnError | NoThreadError):
        return Released(context.spent)
    if isinstance(error, DocumentError):
        return context.failed(error.failure)
    if isinstance(error, TryAgainError):
        failure = Failure(ErrorClass.HANDLER, one_line(described(error)), traceback_text(error))
        return context.failed(failure, after_s=error.after_s)
    if isinstance(error, GiveUpError):
        text = one_line(described(error))
        return context.failed(Failure(ErrorClass.HANDLER_GAVE_UP, text, traceback_text(error)))
    return None


def _timeout_text(limit_s: float | None) -> str:
    within = "its claim" if limit_s is None else f"the {limit_s:g} s of its type's time_limit_s"
    return f"the handler did not end within {within}"


def _description(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError) and not error.args:
        return f"{type(error).__name__}: {_ABANDONED}"
    return describe_error(error)


def _cause(error: BaseException) -> BaseException:
    """Return the error that decides the outcome.

    Of several errors raised together it is the first refused call, or else the first error.
    """
    raised = list(leaf_errors(error))
    refusals = (cause for cause in raised if isinstance(cause, CallRefusedError))
    return next(refusals, raised[0])
