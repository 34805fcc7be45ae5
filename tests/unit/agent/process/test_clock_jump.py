"""A backward clock jump of a minute or more is detected; forward and small steps are not."""

import asyncio

import pytest

from docllm.agent.process.clock_jump import wait_for_backward_jump


class JumpingClock:
    """A clock that deviates from the real one by the values of a list, one for each second."""

    def __init__(self, away_s: list[float]) -> None:
        self._away_s = away_s
        self.at = 0

    def now_s(self) -> float:
        return float(self.at)

    def utc_s(self) -> float:
        return 1e9 + self.at + self._away_s[self.at]

    async def sleep(self, delay_s: float) -> None:
        self.at += round(delay_s)
        if self.at == len(self._away_s):
            raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("away_s", "by_s"),
    [([0, 0, -60, -60], 60.0), ([0, 9986, 9986, 0], 9986.0), ([5, 4, -29000, 0], 29004.0)],
)
def test_a_step_back_is_noticed(away_s: list[float], by_s: float) -> None:
    """A backward jump is detected at once, with its size."""
    assert asyncio.run(wait_for_backward_jump(JumpingClock(away_s))) == pytest.approx(by_s)


@pytest.mark.parametrize("away_s", [[0] * 9, [0, 3600, 7200], [0, -59, -118, -177]])
def test_anything_else_is_not(away_s: list[float]) -> None:
    """A laptop that slept, or a clock that is corrected in small steps, is no backward jump."""
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(wait_for_backward_jump(JumpingClock(away_s)))
