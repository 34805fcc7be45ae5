"""The hooks that settings name: what runs after an attempt, or a batch, has ended.

The hook of a type gets the task's context and how the attempt ended. What a hook raises is its own
failure.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import CallRefusedError, LeaseLostError, WaitedTooLongError
from docllm.agent.handlers.faults import deciding_leaf
from docllm.agent.handlers.functions import NoRoomError
from docllm.agent.handlers.handler_run import HandlerRun, Tools
from docllm.agent.handlers.held_lock import LockError
from docllm.agent.handlers.registry import RunFunction, is_generator, module_of, takes
from docllm.agent.judge import one_line
from docllm.agent.ledger.hook_runs import HookReturn
from docllm.agent.ports.outcome import Failure, Spent
from docllm.agent.process.containment import current_task, enter_handler, is_to_end, leaf_errors
from docllm.agent.process.frames import frames_of_error, place_of, traceback_text
from docllm.producer.text.printable import FRAMES
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.hooks import OF_BATCHES, HookEvent, HookKind
from docllm.schemas.task.line.parsing import parse_again
from docllm.schemas.text.untrusted import contained, describe_error

log = logging.getLogger(__name__)


class NoLocks:
    """Refuses every lock: a hook has no claim under which it could hold a lock."""

    def ask(self, name: str) -> None:
        """Raise LockError."""
        raise LockError(f"a hook cannot take the lock {name!r}; take it in the task's handler")

    async def wait(self, _name: str, _wait_s: float, *, once: bool = False) -> int | None:
        """Return None."""
        del once
        return None

    def give_back(self, name: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome:
    """How the attempt ended after which a hook runs.

    - `status`: the task's state: `succeeded`, `retrying`, `dead` or `cancelled`.
    - `result`: what an export writes as the result; None if the task has none.
    - `error_class`, `error`: those of the failed attempt; empty after a success.
    - `disposition`: why a dead task was given up.
    - `attempts`: how many attempts have counted, with this one.
    """

    event: HookEvent
    status: str
    result: Any
    error_class: str
    error: str
    disposition: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """A batch whose tasks are all final.

    - `round`: 1 for its first end; one more each time that it ends again, as after a replay.
    - `ended_at`: when the end was found, as ISO text.
    - `counts`: its tasks: `total`, `succeeded`, `dead`, `cancelled`.
    - `cost`: in the currency's unit; None if it is unknown.
    """

    group: str
    batch: str
    round: int
    ended_at: str
    counts: Mapping[str, int]
    cost: float | None


class NotToldError(Exception):
    """A server or a command did not take the end of a batch; the text says why."""


Hook = Callable[[AttemptContext, HookOutcome], Awaitable[Any]]
Tell = Callable[[BatchEnd], Awaitable[None]]


def load_hooks(
    types: Mapping[str, TypeConfig], *, runner: Callable[[Callable[..., Any]], RunFunction]
) -> dict[HookKind, Hook]:
    """Return the hooks that types name.

    `runner` returns what runs a function. Raises ConfigError with a line for each hook that cannot
    be used.
    """
    loaded: dict[HookKind, Hook] = {}
    faults: list[str] = []
    for name, task_type in types.items():
        for event, path in task_type.hooks.items():
            try:
                function = function_of(path, "context", "outcome")
                loaded[name, event] = _hook(function, runner(function))
            except ConfigError as error:
                faults.append(f"types.{name}.on_{event}: {error}")
    if faults:
        raise ConfigError("\n".join(faults))
    return loaded


def function_of(path: str, *arguments: str) -> Callable[..., Any]:
    """Return the function that takes these arguments. Raises ConfigError."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] | None = getattr(module_of(module), name, None)
    form = f"def {name}({{0}}), or async def {name}({{0}})".format(", ".join(arguments))
    if function is None or not callable(function) or inspect.isclass(function):
        raise ConfigError(f"module {module} has no function {name}; define it there as: {form}")
    if is_generator(function):
        raise ConfigError(
            f"{path} is a generator, so its body would never run; "
            f"use no `yield` in it, and define it as: {form}"
        )
    if not takes(function, len(arguments)):
        taken = " and ".join(f"the {argument}" for argument in arguments)
        raise ConfigError(f"{path} must take {taken}; define it as: {form}")
    return function


def _hook(function: Callable[..., Any], run: RunFunction) -> Hook:
    async def hook(context: AttemptContext, outcome: HookOutcome) -> Any:
        return await run(lambda context: function(context, outcome), context)

    return hook


class Hooks:
    """All hooks of an agent, by type and event, and that of batches."""

    def __init__(
        self, *, tools: Tools, by_kind: Mapping[HookKind, Hook], of_batches: Tell | None = None
    ) -> None:
        self._of_batches = of_batches
        self.apply(tools=tools, by_kind=by_kind)

    def apply(self, *, tools: Tools, by_kind: Mapping[HookKind, Hook]) -> None:
        """Use these from the next hook on."""
        self._tools = tools
        self._by_kind = dict(by_kind)

    @property
    def kinds(self) -> frozenset[HookKind]:
        """The types and events that have a hook."""
        return frozenset(self._by_kind) | ({OF_BATCHES} if self._of_batches else frozenset())

    async def run(self, kind: HookKind, run: HandlerRun, outcome: HookOutcome) -> HookReturn:
        """Run the hook of this kind.

        `run` bounds its time and its calls, as it does for a handler. Raises CancelledError if the
        program ends it.
        """
        hook = self._by_kind.get(kind)
        if hook is None:  # the settings have changed since
            return HookReturn(Spent(), released=True)
        try:
            with contained():
                task = parse_again(run.value)
        except Exception as error:  # noqa: BLE001 - an unreadable task must not harm other hooks
            text = f"the record is not a task line: {describe_error(error)}"
            return HookReturn(Spent(), one_line(text))
        context = AttemptContext(task=task, run=run, tools=self._tools)
        own_task, limit = current_task(), asyncio.timeout(run.left_s)
        enter_handler(own_task)
        try:
            async with limit:
                await hook(context, outcome)
                _require_no_follow_ups(context)
        except BaseException as error:
            if is_to_end(error, own_task):
                raise
            self._tools.failed(error)
            returned = _returned(error, context.spent, timed_out=limit.expired())
            if not returned.released:
                self._note(kind, error, context, returned.failure)
            return returned
        finally:
            context.end()
        return HookReturn(context.spent)

    async def run_of_batch(self, end: BatchEnd, left_s: float) -> HookReturn:
        """Run the hook of a batch that is done. Raises CancelledError if the program ends it."""
        if self._of_batches is None:  # another agent ordered it
            return HookReturn(Spent(), released=True)
        own_task, limit = current_task(), asyncio.timeout(left_s)
        try:
            async with limit:
                await self._of_batches(end)
        except BaseException as error:
            if is_to_end(error, own_task):
                raise
            self._tools.failed(error)
            returned = _returned(error, Spent(), timed_out=limit.expired())
            if returned.released:
                return returned
            says_all = isinstance(error, NotToldError) or limit.expired()
            frames = {} if says_all else {FRAMES: traceback_text(error)}
            name, failure = f"batch {end.batch}, round {end.round}", returned.failure
            log.warning(
                "on_batch_done of %s, failed: %s",
                name,
                failure,
                extra={"code": Code.HANDLER_FAILS, **frames},
            )
            return replace(returned, failure=one_line(f"{name}: {failure}"))
        return HookReturn(Spent())

    def _note(
        self, kind: HookKind, error: BaseException, context: AttemptContext, failure: str
    ) -> None:
        """Log an error with its traceback, if it is the first of its kind."""
        name, event = kind
        self._tools.errors.note(
            task=context.name,
            task_type=f"{name} (on_{event})",
            failure=Failure(ErrorClass.HOOK, failure, traceback_text(error)),
            place=place_of(frames_of_error(error)),
            now_s=self._tools.clock.now_s(),
        )


def _require_no_follow_ups(context: AttemptContext) -> None:
    if context.follow_ups:
        raise TypeError("a hook cannot order follow-ups; order them in the task's handler")


def _returned(raised: BaseException, spent: Spent, *, timed_out: bool) -> HookReturn:
    if timed_out:
        return HookReturn(spent, "it did not end in time")
    if any(
        isinstance(cause, LeaseLostError | WaitedTooLongError | NoRoomError)
        for cause in leaf_errors(raised)
    ):
        return HookReturn(spent, released=True)
    error = deciding_leaf(raised, CallRefusedError)
    if isinstance(error, CallRefusedError):
        text = f"its call failed: {error}"
    else:
        text = str(error) if isinstance(error, NotToldError) else describe_error(error)
    return HookReturn(spent, one_line(text))
