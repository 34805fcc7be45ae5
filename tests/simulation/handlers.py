"""Handlers of the runs' own task types, as a person would write them.

They fail, hang, ask for time, or end their program.
"""

import asyncio
import zlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from docllm.agent.handlers import ComeBackError, Context, TryAgainError
from docllm.agent.handlers.builtin.chat import chat
from docllm.agent.handlers.calls.results import LeaseLostError
from docllm.agent.hooks.functions import BatchEnd, HookOutcome
from tests.simulation.machine import BATCH, CHILDREN, COME_BACKS, CRM, JOIN, SHARED


@dataclass(frozen=True, slots=True)
class Host:
    """The program in which a handler runs: how it dies, and whether its release is a good one.

    `used` notes that a handler uses what a lock guards, by the lock's name and fence. `hooked`
    notes that a hook has run to its end, and `told` the same of a round of the batch. `spoil` lets
    a handler's process end with its next attempt. `at_once` notes that one more handler of `narrow`
    runs, or one less. `begin_use` notes the begin of a use of what is limited, and returns what
    notes its end. `begin_run` does so for a run of a task, and says whether it must not come twice.
    """

    die: Callable[[], None]
    good: Callable[[], bool]
    used: Callable[[str, int], None] = lambda _name, _fence: None
    hooked: Callable[[int, str], None] = lambda _task_id, _event: None
    told: Callable[[int], None] = lambda _number: None
    spoil: Callable[[], None] = lambda: None
    at_once: Callable[[int], None] = lambda _change: None
    begin_use: Callable[[str], Callable[[], None]] = lambda _limit: lambda: None
    begin_run: Callable[[int, bool], Callable[[], None]] = lambda _task_id, _once: lambda: None


HOST: ContextVar[Host] = ContextVar("HOST")


async def raises(context: Context) -> object:
    """Raise until the better release."""
    if not HOST.get().good():
        raise ValueError("a bug in the handler")
    return await chat(context)


class PanicError(BaseException):
    """What a panic of a Rust library is in Python."""


class UnreadableError(Exception):
    """An error whose message cannot be made."""

    def __str__(self) -> str:
        raise PanicError("no message")


_WORST: tuple[Callable[[], BaseException], ...] = (
    lambda: PanicError("index out of bounds"),
    lambda: SystemExit(0),
    GeneratorExit,
    MemoryError,
    UnreadableError,
    asyncio.CancelledError,
    lambda: BaseExceptionGroup("both", [PanicError("one"), ValueError("two")]),
)


async def panics(context: Context) -> object:
    """Pay for a call, then raise what is no usual error, until there is a better release."""
    answer = await chat(context)
    if not HOST.get().good():
        worst = _WORST[(zlib.crc32(context.task.key.encode()) + context.attempt - 1) % len(_WORST)]
        raise worst()
    return answer


async def kills(context: Context) -> object:
    """End the program until the better release, as a lack of memory does."""
    if not HOST.get().good():
        HOST.get().die()
        await asyncio.get_running_loop().create_future()
    return await chat(context)


async def waits(context: Context) -> object:
    """Ask for time once."""
    if context.attempt == 1:
        raise TryAgainError("not yet", after_s=7.0)
    return await chat(context)


async def polls(context: Context) -> object:
    """Come back some times before the call."""
    seen = context.state.get("seen", 0)
    if seen < COME_BACKS:
        raise ComeBackError(after_s=3.0, state={"seen": seen + 1})
    return await chat(context)


async def hangs(context: Context) -> object:
    """Never end until the better release."""
    if not HOST.get().good():
        await asyncio.get_running_loop().create_future()
    return await chat(context)


def _wait_s(context: Context) -> float | None:
    """Return how long a task waits for what others hold: one in three tries once."""
    return 0 if zlib.crc32(context.task.key.encode()) % 3 == 0 else None


async def locks(context: Context) -> object:
    """Use what a lock guards, before and after a call."""
    used = HOST.get().used
    async with context.lock("account", _wait_s(context)) as held:
        held.check()
        used(held.name, held.fence)
        answer = await chat(context)
        held.check()
        used(held.name, held.fence)
    return answer


RULES: tuple[Literal["wait", "run", "die"], ...] = ("wait", "run", "die")


async def family(context: Context) -> object:
    """Order follow-ups after a call that may take long."""
    answer = await chat(context)
    for number in range(CHILDREN):
        line = {"id": f"{context.task.key}/{number}", "prompt": f"Sum {number}"}
        if context.task.model:  # a parent's bounds hold for its follow-ups
            line["model"] = context.task.model
        await context.follow(line)
    rule = RULES[zlib.crc32(context.task.key.encode()) % len(RULES)]
    join = line | {"id": f"{context.task.key}/all", "prompt": "Sum all", "type": JOIN}
    await context.follow(join, after="children", on_dead_child=rule)
    return answer


async def join(context: Context) -> object:
    """Make a call when the siblings were read."""
    siblings = [child.id async for child in context.children()]
    assert len(siblings) == CHILDREN, siblings
    return await chat(context)


async def hooked(context: Context) -> object:
    """Fail at first in some tasks, so that all hooks run."""
    if context.attempt == 1 and zlib.crc32(context.task.key.encode()) % 3 == 0:
        raise TryAgainError("not yet")
    return await chat(context)


async def note(context: Context, outcome: HookOutcome) -> None:
    """Take a while, as a hook, and note that it has run."""
    await asyncio.sleep(zlib.crc32(context.task.key.encode()) % 4)
    HOST.get().hooked(int(context.name.split()[1]), outcome.event)


async def note_end(end: BatchEnd) -> None:
    """Take a while, and note which round of the batch has ended."""
    await asyncio.sleep(end.round % 3)
    if end.batch == BATCH:
        HOST.get().told(end.round)


def ends_process(key: str) -> bool:
    """Return whether the handler `fragile` ends its process for the task with this id."""
    return int(key.rpartition("-")[2]) % 3 == 0


async def fragile(context: Context) -> object:
    """End the process for a third of the tasks; for another third, leave it broken to the next."""
    key = context.task.key
    if ends_process(key) and not HOST.get().good():
        HOST.get().die()
        await asyncio.get_running_loop().create_future()
    if int(key.rpartition("-")[2]) % 3 == 1:
        HOST.get().spoil()
    return await chat(context)


async def narrow(context: Context) -> object:
    """Make a call; the agent may run one such handler at a time."""
    at_once = HOST.get().at_once
    at_once(1)
    try:
        return await _noted(context, once=False)
    finally:
        at_once(-1)


async def shared(context: Context) -> object:
    """Use what the group's limits allow: the type's, and one with a name."""
    begin = HOST.get().begin_use
    end = begin(SHARED)
    try:
        async with context.limit(CRM, _wait_s(context)):
            end_use = begin(CRM)
            try:
                return await chat(context)
            finally:
                end_use()
    finally:
        end()


async def once(context: Context) -> object:
    """Make a call in a run that must not come twice."""
    return await _noted(context, once=True)


async def _noted(context: Context, *, once: bool) -> object:
    """Make a call, and note the begin of the run, and its end, if nobody cuts it off."""
    ends = HOST.get().begin_run(int(context.name.split()[1]), once)
    try:
        answer = await chat(context)
    except (asyncio.CancelledError, LeaseLostError):
        raise
    except BaseException:
        ends()
        raise
    ends()
    return answer
