"""The watermark of one partition: the offset below which every record is settled. Pure.

Only records that were read are tracked, so gaps between offsets are harmless. Finished offsets take
no memory.
"""

from collections import OrderedDict


class OffsetTracker:
    """Tracks one assignment of one partition. A new assignment gets a new tracker."""

    __slots__ = ("_newest", "_open", "redelivered", "watermark")

    def __init__(self) -> None:
        self._open: OrderedDict[int, None] = OrderedDict()
        self._newest = -1
        # The offset to commit: the first unfinished one; None if nothing was read.
        self.watermark: int | None = None
        # The first records of an assignment may have been settled before it began.
        self.redelivered = True

    def begin(self, offset: int) -> bool:
        """Add a record that was read; return False if this assignment has read it before."""
        if offset <= self._newest:
            return False
        if not self._open:
            self.watermark = offset
        self._newest = offset
        self._open[offset] = None
        return True

    def finish_offset(self, offset: int) -> None:
        """Mark a record as finished; finishing it again does nothing."""
        self._open.pop(offset, None)
        if offset == self.watermark:
            self.watermark = next(iter(self._open), self._newest + 1)

    @property
    def span(self) -> int:
        """The offsets from the watermark to the newest record; a crash repeats them."""
        return self._newest + 1 - self.watermark if self.watermark is not None else 0

    @property
    def unfinished(self) -> int:
        """How many records are in flight."""
        return len(self._open)
