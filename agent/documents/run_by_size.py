"""Runs work on a document's bytes: inline for a small document, otherwise in an executor."""

from collections.abc import Callable
from typing import TypeVar

from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.untrusted import contained

T = TypeVar("T")
_FEW_BYTES = 64 << 10  # below this, hashing or decoding costs less than a thread switch


async def run_by_size(executor: Executor, call: Callable[[], T], *, size: int) -> T:
    """Return the result of `call`, which works on `size` bytes; its errors are Exceptions."""

    def work() -> T:
        with contained():
            return call()

    return work() if size <= _FEW_BYTES else await executor(work)
