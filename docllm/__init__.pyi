from docllm.agent.handlers import (
    BlockingContext,
    ComeBackError,
    Context,
    GiveUpError,
    TryAgainError,
)
from docllm.batch import Batch, Client
from docllm.results import Counts, LoadError, Reject, Result, Submitted, WaitError

__all__ = [
    "Batch",
    "BlockingContext",
    "Client",
    "ComeBackError",
    "Context",
    "Counts",
    "GiveUpError",
    "LoadError",
    "Reject",
    "Result",
    "Submitted",
    "TryAgainError",
    "WaitError",
]
