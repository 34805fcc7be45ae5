"""The time limit of one step, whose error says what did not answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from docllm.schemas.errors import UnreachableError


@asynccontextmanager
async def ends_within(limit_s: float, problem: Callable[[], str]) -> AsyncIterator[None]:
    """Cancel the block after `limit_s` seconds, and raise UnreachableError with `problem()`."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise UnreachableError(problem()) from None
