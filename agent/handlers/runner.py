"""Runs the handler of a task's type, and turns whatever it does into an outcome.

Only three exceptions pass through: the cancellation of the attempt, the close of its coroutine, and
a person's Ctrl-C. Everything else that a handler raises is a counted failure of the handler, even
`sys.exit`, a panic of a native library, or an error without a message.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext, Handler
from docllm.agent.handlers.builtin.chat import chat
from docllm.agent.handlers.builtin.map_reduce import map_reduce
from docllm.agent.handlers.calls.call_plan import CallPlan
from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.documents import DocumentError
from docllm.agent.handlers.faults import Decision, deciding_leaf, fault_of
from docllm.agent.handlers.functions import NoRoomError
from docllm.agent.handlers.handler_run import HandlerRun, Tools
from docllm.agent.handlers.json_values import as_json
from docllm.agent.handlers.processes.process import ProcessDiedError, ProcessUnusableError
from docllm.agent.handlers.processes.suspects import RunSuspect, SuspectDiedError
from docllm.agent.judge import Action, action_of, one_line
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Released, Snooze, Spent, Succeeded
from docllm.agent.process.containment import current_task, enter_handler, is_to_end
from docllm.schemas.settings.claim_time import HANDLER_GRACE_S
from docllm.schemas.settings.config import NO_SETTINGS
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.line.parsing import parse_again
from docllm.schemas.task.result.codec import VALUE, pack_result, with_json
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.untrusted import contained, described

UNUSABLE_S = 60.0  # delay before an attempt is retried for which no process could be started
_BUILT_IN: Mapping[str, Handler] = {MAP_REDUCE: map_reduce}


class Handlers:
    """All handlers of an agent, by task type.

    A type without a handler has the built-in one of its name, or is a chat completion.

    `run_suspect` runs the handler of a task over which agents were lost.
    """

    def __init__(
        self, *, tools: Tools, by_type: Mapping[str, Handler], run_suspect: RunSuspect
    ) -> None:
        self._run_suspect = run_suspect
        self.apply(tools=tools, by_type=by_type)

    def apply(self, *, tools: Tools, by_type: Mapping[str, Handler]) -> None:
        """Use these handlers from the next attempt on; running attempts keep their handler."""
        self._tools = tools
        self._by_type = dict(by_type)

    def plain_plan(self, task_type: str, route: str) -> CallPlan | None:
        """Return how the built-in chat makes a task's one call; None for any other handler."""
        if task_type in self._by_type or task_type in _BUILT_IN:
            return None
        plan = self._tools.plan(task_type, route)
        return plan if plan.is_plain else None

    def runs_again(self, task_type: str) -> bool:
        """Return whether a task of a type runs again after it was cut off."""
        return self._tools.types.get(task_type, NO_SETTINGS).on_loss == "again"

    def may_come_back(self, task_type: str) -> bool:
        """Return whether the handler of a type may ask to come back later."""
        return task_type in self._by_type

    async def run(self, run: HandlerRun) -> Outcome:
        """Run the handler of the task's type; return how the attempt ended."""
        try:
            with contained():
                task = parse_again(run.value)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - an unreadable task must not harm other tasks
            text = one_line(f"the record is not a task line: {described(error)}")
            failure = Failure(ErrorClass.UNDECODABLE, text)
            return Dead(failure, Spent(), Disposition.UNDECODABLE)
        output_uri = task.output_uri or run.output_uri
        if output_uri and (refusal := run.output_refusal(output_uri)) is not None:
            return refusal
        context = AttemptContext(task=task, run=run, tools=self._tools)
        outcome = await self._handle(context, run.left_s)
        if not (output_uri or run.is_changed) or not isinstance(outcome, Succeeded):
            return outcome
        # Without the ledger's line at hand, or with another one, the encoding says what it is.
        codec = outcome.codec if task.schema is None else with_json(outcome.codec)
        return replace(outcome, codec=codec, output_uri=output_uri or "")

    async def _handle(self, context: AttemptContext, left_s: float) -> Outcome:
        handler = self._by_type.get(context.task.type) or _BUILT_IN.get(context.task.type, chat)
        if context.suspect:
            handler = partial(self._run_suspect, handler)
        own_s = context.rules.time_limit_s or self._tools.usual_limit_s
        limit = asyncio.timeout(min(left_s + HANDLER_GRACE_S, own_s))
        attempt = current_task()
        enter_handler(attempt)
        try:
            async with limit:
                return _outcome(await handler(context), context)
        except BaseException as error:
            if is_to_end(error, attempt):
                if isinstance(error, asyncio.CancelledError):
                    return context.cut_off("its agent stopped, or its claim was over")
                raise
            self._tools.failed(error)
            return self._raised(error, context, timed_out=limit.expired())
        finally:
            context.end()

    def _raised(
        self, raised: BaseException, context: AttemptContext, *, timed_out: bool
    ) -> Outcome:
        """Return the outcome of an attempt whose handler raised; log an error of its code."""
        error = deciding_leaf(raised, CallRefusedError)
        decided = _decided(error, context)
        if decided is not None:
            return decided
        # An error in a handler's exception group may have no traceback of its own, because it was
        # never raised.
        fault = fault_of(error, raised if error.__traceback__ is None else error)
        if fault.decision is Decision.COME_BACK:
            return context.comes_back(fault.after_s, fault.at, fault.state)
        if fault.decision is not None:
            gives_up = fault.decision is Decision.GIVE_UP
            error_class = ErrorClass.HANDLER_GAVE_UP if gives_up else ErrorClass.HANDLER
            failure = Failure(error_class, fault.text, fault.traceback)
            return context.failed(failure, after_s=fault.after_s, at=fault.at)
        text = _timeout_text(context) if timed_out else fault.text
        given_up = not timed_out and action_of(fault.names, context.rules) is Action.GIVE_UP
        error_class = ErrorClass.HANDLER_GAVE_UP if given_up else ErrorClass.HANDLER
        keeps_losses = timed_out and context.suspect
        failure = Failure(error_class, text, fault.traceback, keeps_losses=keeps_losses)
        self._tools.errors.note(
            task=context.name,
            task_type=context.task.type,
            failure=failure,
            place=fault.place,
            now_s=self._tools.clock.now_s(),
        )
        return context.failed(failure)


def _outcome(result: Any, context: AttemptContext) -> Outcome:
    """Return the outcome of what a handler returned; a JSON value is stored as the result."""
    outcome, follow_ups = _end(result, context), context.follow_ups
    if (follow_ups or context.noted) and isinstance(outcome, Succeeded):
        notes = tuple((kind, tuple(texts)) for kind, texts in context.noted.items())
        return replace(outcome, follow_ups=follow_ups, notes=notes)
    return outcome


def _end(result: Any, context: AttemptContext) -> Outcome:
    if isinstance(result, Answer):
        is_last = result.outcome.spent is context.spent
        return result.outcome if is_last else replace(result.outcome, spent=context.spent)
    if isinstance(result, Succeeded | Dead):
        is_complete = result.spent.has_called or not context.spent.has_called
        return result if is_complete else replace(result, spent=context.spent)
    if isinstance(result, Outcome):
        raise TypeError(
            f"a handler does not return {type(result).__name__}; raise TryAgainError or GiveUpError"
        )
    return Succeeded(*pack_result(VALUE, as_json(result)), context.spent)


def _decided(error: BaseException, context: AttemptContext) -> Outcome | None:
    """Return the outcome that an error of docllm's own stands for; None if it is another error."""
    if isinstance(error, CallRefusedError):
        # A handler may have made other calls at the same time.
        return replace(error.outcome, spent=context.spent)
    if isinstance(error, WaitedTooLongError):
        return context.waited_too_long()
    if isinstance(error, LeaseLostError):
        return context.cut_off("its agent lost its lease")
    if isinstance(error, NoRoomError):
        return Released(context.spent)
    if isinstance(error, DocumentError):
        return context.failed(error.failure)
    return _of_process(error, context)


def _of_process(error: BaseException, context: AttemptContext) -> Outcome | None:
    """Return the outcome for an attempt whose process died or could not be started."""
    died = isinstance(error, SuspectDiedError | ProcessDiedError)
    if died and isinstance(cut_off := context.cut_off(one_line(str(error))), Dead):
        return cut_off
    if isinstance(error, SuspectDiedError):
        failure = Failure(ErrorClass.WORKER_LOST, one_line(str(error)), keeps_losses=True)
        return Dead(failure, context.spent, Disposition.WORKER_LOST)
    if isinstance(error, ProcessDiedError):
        return context.failed(Failure(ErrorClass.HANDLER, one_line(str(error))))
    if isinstance(error, ProcessUnusableError):
        failure = Failure(ErrorClass.INTERNAL, one_line(str(error)))
        return Snooze(failure, context.spent, UNUSABLE_S)
    return None


def _timeout_text(context: AttemptContext) -> str:
    limit_s = context.rules.time_limit_s
    whose = "line" if limit_s == context.task.time_limit_s else "type"
    within = "its claim" if limit_s is None else f"the {limit_s:g} s of its {whose}'s time_limit_s"
    return f"the handler did not return within {within}"
