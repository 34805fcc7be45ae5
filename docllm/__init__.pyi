from docllm.agent.handlers import BlockingContext, Context, GiveUpError, TryAgainError

__all__ = ["BlockingContext", "Context", "GiveUpError", "TryAgainError"]
