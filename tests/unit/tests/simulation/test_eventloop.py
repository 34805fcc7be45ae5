"""The event loop of simulations: a handler ends its own attempt there, as in an agent."""

import random

import pytest

from docllm.agent.process.containment import current_task, enter_handler
from docllm.schemas.text.untrusted import ContainedError
from tests.simulation.eventloop import VirtualLoop


def test_no_task_of_a_handler_ends_the_loop() -> None:
    """Handlers run in tasks of their own; asyncio lets SystemExit of a task end its loop."""
    loop = VirtualLoop(random.Random(1))  # noqa: S311 - protects nothing

    async def leave() -> None:
        raise SystemExit(0)

    async def attempt() -> None:
        enter_handler(current_task())
        with pytest.raises(ContainedError, match="SystemExit"):
            await loop.create_task(leave())

    loop.run_until_complete(attempt())
    loop.close()
