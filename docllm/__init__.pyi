from docllm.agent.handlers import (
    BlockingContext,
    ComeBackError,
    Context,
    GiveUpError,
    TryAgainError,
)

__all__ = ["BlockingContext", "ComeBackError", "Context", "GiveUpError", "TryAgainError"]
