"""A step that takes too long is cancelled, and its error says what did not answer."""

import asyncio

import pytest

from docllm.agent.agent import ends_within
from docllm.schemas.errors import UnreachableError


def test_a_step_ends_within_its_time() -> None:
    """The text is made when the time is over, because it may name what is left by then."""
    left = ["a page"]

    async def run() -> None:
        async with ends_within(60.0, lambda: "not said"):
            left.append("another page")
        async with ends_within(0.0, lambda: f"{len(left)} pages are left"):
            await asyncio.Event().wait()

    with pytest.raises(UnreachableError, match=r"^2 pages are left$"):
        asyncio.run(run())
