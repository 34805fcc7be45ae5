"""The watermark of one partition: the offset below which all is settled. Pure.

Only records that were really read are tracked, so holes in the offsets do no harm. Finished offsets cost nothing.
"""

from collections import OrderedDict


class Tracker:
    """Tracks one assignment of one partition. A new assignment gets a new tracker."""

    __slots__ = ("_newest", "_open", "redelivered")

    def __init__(self) -> None:
        self._open: OrderedDict[int, None] = OrderedDict()
        self._newest = -1
        self.redelivered = True  # the first records after an assignment may have been settled before

    def begin(self, offset: int) -> bool:
        """Note a record that was read; return False when it was read before in this assignment."""
        if offset <= self._newest:
            return False
        self._newest = offset
        self._open[offset] = None
        return True

    def finish(self, offset: int) -> None:
        """Note that a record is finished with; finishing it again does nothing."""
        self._open.pop(offset, None)

    @property
    def watermark(self) -> int | None:
        """Return the offset to commit: the first that is not finished with; None while nothing was read."""
        if self._open:
            return next(iter(self._open))
        return self._newest + 1 if self._newest >= 0 else None

    @property
    def span(self) -> int:
        """Return the distance from the watermark to behind the newest record: what a crash repeats."""
        return self._newest + 1 - self.watermark if self.watermark is not None else 0

    @property
    def unfinished(self) -> int:
        """Return how many records are in flight."""
        return len(self._open)
