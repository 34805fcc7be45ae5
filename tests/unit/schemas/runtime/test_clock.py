"""The machine's clock."""

import asyncio
import time

import pytest

from docllm.schemas.runtime.clock import SystemClock


def test_the_time_since_the_start_only_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who sets the time of day back moves no loop."""
    clock = SystemClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert clock.utc_s() == 0.0
    assert clock.now_s() >= before_s > 0.0


def test_a_sleep_lasts_at_least_as_long_as_asked() -> None:
    """The clock that measures a sleep is the clock that paces the loops."""
    clock = SystemClock()
    before_s = clock.now_s()

    asyncio.run(clock.sleep(0.01))

    assert clock.now_s() - before_s >= 0.009
