"""The handlers: what an agent does for a task, by the task's type.

A handler is an async function that gets a Context and returns an answer or a JSON value.
"""

from agent.handlers.child import ChildExecutor
from agent.handlers.context import (
    Answer,
    Attempt,
    CallRefusedError,
    Context,
    Handler,
    LeaseLostError,
    Tools,
)
from agent.handlers.decisions import GiveUpError, SoftLimitError, TryAgainError
from agent.handlers.documents import DocumentError, Documents
from agent.handlers.other_route import OtherRoute
from agent.handlers.runner import Handlers

__all__ = [
    "Answer",
    "Attempt",
    "CallRefusedError",
    "ChildExecutor",
    "Context",
    "DocumentError",
    "Documents",
    "GiveUpError",
    "Handler",
    "Handlers",
    "LeaseLostError",
    "OtherRoute",
    "SoftLimitError",
    "Tools",
    "TryAgainError",
]
