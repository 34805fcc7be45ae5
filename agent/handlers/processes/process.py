"""One process of handlers, as its agent sees it: it runs one attempt after another."""

import asyncio
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.context import ContextCall
from docllm.agent.handlers.decisions import state_json
from docllm.agent.handlers.documents import DocumentError
from docllm.agent.handlers.faults import Decision, Fault, RemoteError
from docllm.agent.handlers.processes.link import FORWARDED
from docllm.agent.handlers.processes.messages import (
    MESSAGE_HEAD,
    Message,
    MessageError,
    decoded,
    encoded,
    sizes,
)
from docllm.agent.handlers.served_calls import ServedCalls
from docllm.agent.ports.outcome import Dead, Failure, Retry, Snooze
from docllm.agent.process.linked_child import LinkedChild, name_of_end
from docllm.agent.process.use import Use, memory_of
from docllm.producer.text.printable import FRAMES
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.interpreter_watchdog import FROZEN
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.text.untrusted import described
from docllm.schemas.text.wording import one_line

log_of_handlers = logging.getLogger("handler")

MAX_PROCESSES = 64  # a handler that starts more is ended
# Errors that decide how an attempt ends. The agent raises its own original error, not the process's
# copy.
_DECIDING = (CallRefusedError, DocumentError, LeaseLostError, WaitedTooLongError)
_LOG_CHARS = 10_000
_TRACE_CHARS = 20_000


class ProcessDiedError(Exception):
    """A process ended before its attempt did. The text says why.

    `was_used`: earlier attempts ran in the process, too.
    """

    was_used = False


class ProcessUnusableError(Exception):
    """A process could not be started, which says nothing about the task."""


@dataclass(frozen=True, slots=True)
class ProcessHandler:
    """A handler that runs in processes: its path, and what an attempt may use.

    `label` names the type in messages. `frozen_s`: for how much processor time the other Python
    threads of a process may be kept from running.
    """

    path: str
    label: str
    memory_mb: int | None = None
    time_s: float | None = None
    frozen_s: float | None = None


@dataclass(slots=True)
class _Run:
    """The attempt that runs; its answers and errors are kept by the numbers of their calls."""

    number: int
    context: AttemptContext
    served: ServedCalls = field(default_factory=ServedCalls)
    kept: dict[int, Answer | BaseException] = field(default_factory=dict)
    calls: dict[int, asyncio.Task[Any] | None] = field(default_factory=dict)


class HandlerProcess:
    """A process and the link to it. A run that did not end well leaves it unusable."""

    def __init__(self, child: LinkedChild, handler: ProcessHandler) -> None:
        self.child = child
        self._handler = handler
        self._reason: str | None = None
        self._fresh_bytes = 0
        self.runs = 0
        self.usable = False

    async def ready(self) -> None:
        """Wait until the handler is imported. Raises ProcessUnusableError."""
        try:
            message = await self._receive()
        except ProcessDiedError as error:
            raise ProcessUnusableError(str(error)) from None
        if message.kind != "ready":
            raise ProcessUnusableError(one_line(str(message.fields.get("text", message.kind))))
        self._fresh_bytes = memory_of(self.child.pid)
        self.usable = True

    async def run(self, context: AttemptContext) -> Any:
        """Run an attempt; return the handler's result, or raise its error.

        Raises ProcessDiedError.
        """
        self.runs += 1
        self.usable = False
        run = _Run(self.runs, context)
        try:
            async with asyncio.timeout(self._handler.time_s) as limit:
                fields = {
                    "run": run.number,
                    "tenant": context.task.tenant,
                    "constant": _constant(context),
                    "facts": _facts(context),
                }
                context.has_begun = True
                await self._send(Message("run", fields, context.line))
                crash.reach("process.run_sent")
                ended = await self._serve(run)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ProcessDiedError(
                f"its process was ended: it ran longer than the {self._handler.time_s:g} s of "
                f"time_s of type {self._handler.label}"
            ) from None
        finally:
            await run.served.end()
        self.usable = True
        crash.reach("process.run_ended")
        return _result(ended, run)

    def check(self, use: Use) -> None:
        """End the process if it uses more than it may."""
        memory_mb = use.memory_bytes >> 20
        if self._handler.memory_mb is not None and memory_mb > self._handler.memory_mb:
            self._end_for(
                f"it used {memory_mb} MiB, more than the {self._handler.memory_mb} of memory_mb "
                f"of type {self._handler.label}"
            )
        elif use.processes > MAX_PROCESSES:
            self._end_for(f"it started more than {MAX_PROCESSES} processes")

    def worn(self) -> bool:
        """Return whether the process has grown so much that its next attempt could be blamed."""
        if self._handler.memory_mb is None:
            return False
        return (
            memory_of(self.child.pid) > (self._fresh_bytes + (self._handler.memory_mb << 20)) // 2
        )

    def kill(self) -> None:
        """End the process and those that it started."""
        self.usable = False
        self.child.kill()

    async def close(self) -> None:
        """End the process and wait for its end."""
        self.usable = False
        await self.child.close()

    def _end_for(self, reason: str) -> None:
        self._reason = self._reason or f"its process was ended: {reason}"
        self.kill()

    async def _serve(self, run: _Run) -> Message:
        """Carry out the handler's calls until it ends; return how it ended."""
        while True:
            message = await self._receive()
            if message.kind == "log":
                _log(message.fields, run.context)
            elif message.fields.get("run") != run.number:
                continue  # from a thread that an earlier attempt left behind
            elif message.kind == "call":
                self._begin(run, message.fields)
            elif message.kind == "given_up":
                _cancel(run, message.fields)
            else:
                return message

    def _begin(self, run: _Run, fields: Mapping[str, Any]) -> None:
        try:
            number, wanted = int(fields["call"]), ContextCall(fields["wanted"])
            call = partial(run.context.call, wanted, **dict(fields["arguments"]))
        except (KeyError, TypeError, ValueError):
            raise ProcessDiedError("its process sent a call that is not valid") from None
        crash.reach("process.call_received")
        run.calls[number] = run.served.begin(call, partial(self._answer, run, number))

    def _answer(self, run: _Run, number: int, task: "asyncio.Task[Any]") -> None:
        """Send what a call gave, unless nobody waits for it any more."""
        run.calls.pop(number, None)
        if task.cancelled():
            return
        error = task.exception()
        fields = {"call": number, "facts": _facts(run.context)}
        if error is not None:
            if isinstance(error, _DECIDING):
                run.kept[number] = error
            message = Message("error", fields | _error_fields(error))
        else:
            result = task.result()
            if isinstance(result, Answer):
                run.kept[number] = result
                spent = asdict(result.outcome.spent)
                of_answer = {"spent": spent, "codec": result.codec}
                message = Message("answer", fields | of_answer, result.body)
            elif isinstance(result, str):  # a document
                message = Message("text", fields, result.encode())
            else:
                message = Message("value", fields | {"value": result})
        with suppress(OSError):
            self.child.writer.write(encoded(message))

    async def _send(self, message: Message) -> None:
        try:
            self.child.writer.write(encoded(message))
            await self.child.writer.drain()
        except OSError:
            raise ProcessDiedError(await self._why_dead()) from None

    async def _receive(self) -> Message:
        try:
            body_bytes, data_bytes = sizes(await self.child.reader.readexactly(MESSAGE_HEAD.size))
            parts = await self.child.reader.readexactly(body_bytes + data_bytes)
            return decoded(parts[:body_bytes], parts[body_bytes:])
        except MessageError as error:
            raise ProcessDiedError(f"its process was ended: {error}") from None
        except (asyncio.IncompleteReadError, OSError):
            raise ProcessDiedError(await self._why_dead()) from None

    async def _why_dead(self) -> str:
        """Return why the process closed its link, worded to follow the task's name."""
        if self._reason is not None:
            return self._reason
        code = await self.child.exit_code()
        if code is None:
            return "its process was ended: it closed the link to its agent"
        if code == FROZEN and self._handler.frozen_s is not None:
            seconds = f"{self._handler.frozen_s:g} s of processor time"
            return f"its process was ended: no Python code ran in it for {seconds}"
        if code >= 0:
            return f"its process ended with {name_of_end(code)}; a handler returns or raises"
        hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process ended by {name_of_end(code)}{hint}"


def _cancel(run: _Run, fields: Mapping[str, Any]) -> None:
    """Cancel a call whose coroutine was cancelled in the process."""
    number = fields.get("call")
    task = run.calls.get(number) if isinstance(number, int) else None
    if task is not None:
        task.cancel()


def _constant(context: AttemptContext) -> dict[str, Any]:
    """Return what does not change during an attempt, by the names of `RemoteAttempt`."""
    return {
        "name": context.name,
        "attempt": context.attempt,
        "losses": context.losses,
        "state": context.state,
        "prompt": context.prompt,
        "schema": context.schema,
    }


def _facts(context: AttemptContext) -> dict[str, Any]:
    """Return what may change during an attempt."""
    return {
        "model": context.model,
        "structured": context.structured,
        "overdue": context.overdue,
    }


def _result(ended: Message, run: _Run) -> Any:
    """Return the result of a run that has ended, or raise its error."""
    fields = ended.fields
    try:
        if ended.kind == "returned":
            return orjson.loads(ended.data)
        if ended.kind == "dead":
            failure = Failure(ErrorClass[fields["error_class"]], one_line(str(fields["text"])))
            return Dead(failure, run.context.spent, Disposition[fields["disposition"]])
        kept = run.kept.get(fields["number"]) if fields.get("number") is not None else None
        if ended.kind == "answered" and isinstance(kept, Answer):
            return kept
        error = kept if isinstance(kept, BaseException) else RemoteError(_fault(fields))
    except (KeyError, TypeError, ValueError):
        error = ProcessDiedError("its process sent no valid message about its end")
    raise error


def _fault(fields: Mapping[str, Any]) -> Fault:
    at, state = fields["at"], fields["state"]
    decision = fields["decision"]
    return Fault(
        text=one_line(str(fields["text"])),
        names=[[str(name) for name in names] for names in fields["names"]],
        traceback=str(fields["traceback"])[:_TRACE_CHARS],
        place=one_line(str(fields["place"])),
        decision=None if decision is None else Decision(decision),
        after_s=float(fields["after_s"]),
        at=None if at is None else datetime.fromisoformat(at),
        state=None if state is None else state_json(orjson.loads(state)),
    )


def _error_fields(error: BaseException) -> dict[str, Any]:
    """Return what the process needs to raise an error like this one."""
    kind = next((kind for kind in FORWARDED if isinstance(error, kind)), type(error))
    error_class = ErrorClass.HANDLER
    if isinstance(error, DocumentError):
        error_class = error.failure.error_class
    elif isinstance(error, CallRefusedError) and isinstance(error.outcome, Dead | Retry | Snooze):
        error_class = error.outcome.failure.error_class
    return {"name": kind.__name__, "text": described(error), "class": error_class.name}


def _log(fields: Mapping[str, Any], context: AttemptContext) -> None:
    """Log what the process has logged; lines of the attempt's own log get its facts."""
    level, text = fields.get("level"), fields.get("text")
    if isinstance(level, int) and isinstance(text, str):
        trace = str(fields.get("trace") or "")[:_TRACE_CHARS]
        facts = context.log.facts if text.startswith(f"{context.name}: ") else {}
        log_of_handlers.log(level, "%s", text[:_LOG_CHARS], extra={**facts, FRAMES: trace})
