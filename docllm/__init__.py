"""docllm runs offline LLM tasks over documents through Kafka, and loses none.

A handler imports its names from here, and a program `Batch` and `Client`. Every child process
imports this module, so it loads a name's module only when the name is used; `__init__.pyi` tells
type checkers what each name is.
"""

from importlib import import_module
from typing import Any

_BATCH = "docllm.batch"
_HANDLERS = "docllm.agent.handlers"
_RESULTS = "docllm.results"
_MODULES = {
    "Batch": _BATCH,
    "BlockingContext": _HANDLERS,
    "Client": _BATCH,
    "ComeBackError": _HANDLERS,
    "Context": _HANDLERS,
    "Counts": _RESULTS,
    "GiveUpError": _HANDLERS,
    "LoadError": _RESULTS,
    "Reject": _RESULTS,
    "Result": _RESULTS,
    "Submitted": _RESULTS,
    "TryAgainError": _HANDLERS,
    "WaitError": _RESULTS,
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Name the public names too, for `help` and completion."""
    return sorted({*globals(), *__all__})
