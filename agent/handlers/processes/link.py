"""The process's end of the link to its agent: calls that wait for their answers."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.context import ContextCall
from docllm.agent.handlers.decisions import AttemptEndedError, SoftLimitError
from docllm.agent.handlers.documents import DocumentError
from docllm.agent.handlers.follow_ups import FollowUpError
from docllm.agent.handlers.held_lock import LockError
from docllm.agent.handlers.json_values import require_finite
from docllm.agent.handlers.named_limits import LimitError
from docllm.agent.handlers.processes.messages import (
    MESSAGE_HEAD,
    Message,
    decoded,
    encoded,
    sizes,
)
from docllm.agent.ports.outcome import Dead, Failure, Spent, Succeeded
from docllm.agent.process.child_process import received
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import VALUE

_WAITING = frozenset({"answer", "error", "text", "value"})
# Errors of the agent that a handler meets under their own classes; others are RuntimeErrors.
FORWARDED: tuple[type[BaseException], ...] = (
    CallRefusedError,
    DocumentError,
    FollowUpError,
    LeaseLostError,
    LimitError,
    LockError,
    WaitedTooLongError,
    SoftLimitError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class NumberedAnswer(Answer):
    """An answer that the agent keeps under a number; its outcome has no body."""

    number: int = field(kw_only=True)


class RemoteCall(Future[Any]):
    """A call on its way through the agent: a thread waits for `result()`, a coroutine awaits it.

    If the coroutine is cancelled, `give_up` tells the agent, which then cancels the call.
    """

    def __init__(self, give_up: Callable[[], None]) -> None:
        super().__init__()
        self._give_up = give_up
        self.set_running_or_notify_cancel()  # its answer may be on its way when it is given up

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            return (yield from asyncio.wrap_future(self).__await__())
        except asyncio.CancelledError:
            self._give_up()
            raise


class AgentLink:
    """The link of a process to its agent. It ends the process when the agent closes it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._runs: SimpleQueue[Message] = SimpleQueue()
        self._waiting: dict[int, RemoteCall] = {}
        self._calls = 0
        self._run = 0  # the number of the present run; 0 is none
        # The attempt's changing values, as the agent sent them last.
        self.facts: dict[str, Any] = {}

    def start(self) -> None:
        """Read what the agent sends, in a thread."""
        threading.Thread(target=self._read, name="link", daemon=True).start()

    def next_run(self) -> Message:
        """Wait for the next attempt to run."""
        return self._runs.get()

    def begin(self, number: int, facts: Mapping[str, Any]) -> None:
        """Begin a run: its calls are sent from now on."""
        with self._lock:
            self._run, self.facts = number, dict(facts)

    def end(self, kind: str, data: bytes = b"", **fields: Any) -> None:
        """Send how the run has ended. Its waiting calls fail, and so does every later one."""
        with self._lock:
            number, self._run = self._run, 0
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(AttemptEndedError())
        self.send(Message(kind, {**fields, "run": number}, data))

    def call(self, run: int, wanted: ContextCall, arguments: Mapping[str, Any]) -> RemoteCall:
        """Ask the agent for something in a run."""
        for name, value in arguments.items():
            require_finite(value, name)
        with self._lock:
            if self._run != run:
                raise AttemptEndedError
            self._calls += 1
            number = self._calls
            future = RemoteCall(partial(self._give_up, run, number))
            self._waiting[number] = future
        fields = {"run": run, "call": number, "wanted": wanted, "arguments": dict(arguments)}
        try:
            self.send(Message("call", fields))
        except BaseException:
            with self._lock:
                self._waiting.pop(number, None)
            raise
        return future

    def _give_up(self, run: int, number: int) -> None:
        with self._lock:
            is_waiting = self._waiting.pop(number, None) is not None
        if is_waiting:
            self.send(Message("given_up", {"run": run, "call": number}))

    def send(self, message: Message) -> None:
        """Send a message; the process ends if the agent is gone."""
        raw = encoded(message)
        try:
            with self._sending:
                self._connection.sendall(raw)
        except OSError:
            os._exit(1)

    def _read(self) -> None:
        with suppress(OSError):
            while (message := self._receive()) is not None:
                if message.kind in _WAITING:
                    self._answer(message)
                else:
                    self._runs.put(message)
        os._exit(0)  # the agent has closed the link, or is gone

    def _receive(self) -> Message | None:
        head = received(self._connection, MESSAGE_HEAD.size)
        if not head:
            return None
        body, data = sizes(head)
        both = received(self._connection, body + data)
        return decoded(both[:body], both[body:]) if both else None

    def _answer(self, message: Message) -> None:
        with self._lock:
            self.facts = {**self.facts, **message.fields["facts"]}
            future = self._waiting.pop(message.fields["call"], None)
        if future is None:
            return
        if message.kind == "error":
            future.set_exception(error_of(message.fields))
        elif message.kind == "text":
            future.set_result(message.data.decode())
        elif message.kind == "value":
            future.set_result(message.fields["value"])
        else:
            spent = Spent(**message.fields["spent"])
            number = message.fields["call"]
            outcome = Succeeded(b"", VALUE, spent)
            codec = message.fields["codec"]
            future.set_result(NumberedAnswer(message.data, outcome, codec, number=number))


def error_of(fields: Mapping[str, Any]) -> BaseException:
    """Rebuild the error that the agent sent.

    By its `call` number, the agent later raises its own error again.
    """
    name, text = fields["name"], fields["text"]
    error: BaseException
    if name == CallRefusedError.__name__:
        error = CallRefusedError(Dead(Failure(ErrorClass[fields["class"]], text), Spent()))
    elif name == DocumentError.__name__:
        error = DocumentError(ErrorClass[fields["class"]], text)
    else:
        kinds = {kind.__name__: kind for kind in FORWARDED}
        error = kinds.get(name, RuntimeError)(text)
    error.call = fields["call"]  # type: ignore[attr-defined]
    return error


class LinkHandler(logging.Handler):
    """Sends the process's log to the agent."""

    def __init__(self, link: AgentLink) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its traceback."""
        text = record.getMessage()
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        fields = {"level": record.levelno, "logger": record.name, "text": text, "trace": trace}
        self._link.send(Message("log", fields))
