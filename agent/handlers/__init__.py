"""The handlers: what an agent does for a task, by the task's type.

A handler is a function that gets a context and returns an answer or a JSON value: an async function
gets a Context, a plain one a BlockingContext.
"""

from docllm.agent.handlers.attempt_context import Handler
from docllm.agent.handlers.builtin.map_reduce import map_reduce
from docllm.agent.handlers.calls.other_route import OtherRoute
from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.context import BlockingContext, Context
from docllm.agent.handlers.decisions import (
    AttemptEndedError,
    ComeBackError,
    GiveUpError,
    SoftLimitError,
    TryAgainError,
)
from docllm.agent.handlers.documents import DocumentError, DocumentReader
from docllm.agent.handlers.follow_ups import FollowUpError
from docllm.agent.handlers.handler_run import HandlerRun, Tools
from docllm.agent.handlers.held_lock import HeldLock, LockError
from docllm.agent.handlers.named_limits import LimitError
from docllm.agent.handlers.runner import Handlers
from docllm.agent.process.child_executor import ChildExecutor

__all__ = [
    "Answer",
    "AttemptEndedError",
    "BlockingContext",
    "CallRefusedError",
    "ChildExecutor",
    "ComeBackError",
    "Context",
    "DocumentError",
    "DocumentReader",
    "FollowUpError",
    "GiveUpError",
    "Handler",
    "HandlerRun",
    "Handlers",
    "HeldLock",
    "LeaseLostError",
    "LimitError",
    "LockError",
    "OtherRoute",
    "SoftLimitError",
    "Tools",
    "TryAgainError",
    "WaitedTooLongError",
    "map_reduce",
]
