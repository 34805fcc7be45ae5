"""The watermark of a partition never passes an unfinished record."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from docllm.agent.inflight.watermark import OffsetTracker


class Model(RuleBasedStateMachine):
    """Reads and finishes in any order, compared with a plain set of unfinished offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.newest = -1
        self.unfinished: set[int] = set()
        self.last_watermark = -1

    @rule(gap=st.integers(1, 5))
    def read_next(self, gap: int) -> None:
        self.newest += gap
        assert self.tracker.begin(self.newest)
        self.unfinished.add(self.newest)

    @rule(back=st.integers(0, 30))
    def read_again(self, back: int) -> None:
        if self.newest - back >= 0:
            assert not self.tracker.begin(self.newest - back)

    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, max(0, self.newest + 3)))
        self.tracker.finish_offset(offset)
        self.unfinished.discard(offset)

    @rule()
    def finish_the_first(self) -> None:
        if self.unfinished:
            self.tracker.finish_offset(min(self.unfinished))
            self.unfinished.remove(min(self.unfinished))

    @invariant()
    def the_watermark_passes_nothing_unfinished(self) -> None:
        watermark = self.tracker.watermark
        expected = min(self.unfinished, default=self.newest + 1) if self.newest >= 0 else None
        assert watermark == expected
        assert self.tracker.unfinished == len(self.unfinished)
        assert self.tracker.span == (0 if watermark is None else self.newest + 1 - watermark)

    @invariant()
    def the_watermark_never_falls(self) -> None:
        if self.tracker.watermark is not None:
            assert self.tracker.watermark >= self.last_watermark
            self.last_watermark = self.tracker.watermark


TestTrackerAgainstAModel = Model.TestCase
TestTrackerAgainstAModel.__doc__ = (
    "Whatever is read and finished, the tracker agrees with a plain set."
)
