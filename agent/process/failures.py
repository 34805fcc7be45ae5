"""The failures that end the agent."""

import asyncio


class Failures:
    """Keeps the reason why the agent must end: that of the first part that reports one."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._reported = asyncio.Event()

    def report(self, reason: str) -> None:
        """Report that a part has failed for good; the agent drains and ends."""
        self.reason = self.reason or reason
        self._reported.set()

    async def wait(self) -> None:
        """Return once a failure was reported."""
        await self._reported.wait()
