"""The failure that ends an agent."""

import asyncio

from docllm.agent.process.failures import Failures


def test_the_first_failure_is_the_reason() -> None:
    """Parts that fail because of it do not hide it."""

    async def run() -> Failures:
        failures = Failures()
        waiting = asyncio.ensure_future(failures.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        failures.report("the disk is full")
        failures.report("the loop has ended")
        await waiting
        return failures

    assert asyncio.run(run()).reason == "the disk is full"
