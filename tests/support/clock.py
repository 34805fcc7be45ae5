"""A clock that a test moves by hand."""


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return self.at_s

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s
