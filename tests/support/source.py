"""A source that reads nothing and records what it is told."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from docllm.agent.ports import AtRest, Event, Partition


class FakeSource:
    """Records its marks and its paused partitions; `is_marked` is set at the watermark `last`."""

    def __init__(self, last: int = -1) -> None:
        self.last = last
        self.marks: list[tuple[Partition, int]] = []
        self.pauses: list[frozenset[Partition]] = []
        self.is_marked = asyncio.Event()

    @property
    def watermark(self) -> int:
        """The watermark of the last mark, -1 before the first one."""
        return self.marks[-1][1] if self.marks else -1

    @property
    def paused(self) -> frozenset[Partition]:
        """The partitions that must not be read."""
        return self.pauses[-1] if self.pauses else frozenset()

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Read nothing."""

    def mark(self, partition: Partition, watermark: int) -> None:
        """Record the watermark."""
        self.marks.append((partition, watermark))
        if watermark == self.last:
            self.is_marked.set()

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Record the paused partitions."""
        self.pauses.append(frozenset(partitions))

    async def commit(self) -> None:
        """Commit nothing."""

    async def at_rest(self) -> AtRest:
        """Return that nothing is left to read."""
        return AtRest(joined=True, lag=0)

    def lag(self) -> Mapping[str, int]:
        """Return no lag."""
        return {}

    async def leave(self) -> None:
        """Leave no group."""
