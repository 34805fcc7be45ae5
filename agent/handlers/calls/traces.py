"""The port through which an attempt reports its calls to tracing."""

from typing import Protocol

from docllm.agent.handlers.calls.permits import CallEnd


class CallTrace(Protocol):
    """One call."""

    @property
    def traceparent(self) -> str:
        """The text that names the call for the provider; empty for none."""
        ...

    def ended(self, end: CallEnd) -> None:
        """Say how the call ended."""
        ...


class AttemptTrace(Protocol):
    """One attempt."""

    @property
    def trace_id(self) -> str:
        """The id of the task's trace, for a log; empty if nothing is traced."""
        ...

    def call(self, route: str, model: str) -> CallTrace:
        """Begin a call."""
        ...


class NoTrace:
    """An attempt that is not traced, and each of its calls."""

    trace_id = traceparent = ""

    def call(self, _route: str, _model: str) -> CallTrace:
        """Do nothing."""
        return self

    def ended(self, end: CallEnd) -> None:
        """Do nothing."""


NO_TRACE = NoTrace()
