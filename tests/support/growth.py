"""Measures how the time of a call grows with its input, as a ratio within one run.

An expression that backtracks exponentially would never end, so the processor time of a measurement
is limited; `re` looks for signals while it searches.
"""

import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

# A call on four times the input takes four times as long, or five if it sorts; a quadratic one
# takes sixteen times as long.
LINEAR = 8.0
_LEAST_S = 0.002  # what a busy machine's clock still measures well
_MOST = 1 << 13
_LIMIT_S = 20.0
_REPEATS = 3
_TRIES = 12  # a busy machine disturbs one measurement after another; growth shows in all of them
_LONG_S = 0.1  # of which one measurement is exact enough


class EndlessError(AssertionError):
    """A measurement did not end within its processor time."""


def growth(
    call: Callable[[T], object],
    made: Callable[[int], T],
    *,
    most: int = _MOST,
    limit_s: float = _LIMIT_S,
) -> float:
    """Return the time of `call(made(most))` by that of a quarter; errors count as ends.

    Returns 1 if it takes less than 2 ms: the call is fast enough, or bounds its input itself.
    Raises EndlessError after `limit_s` of processor time.
    """
    with _limited(limit_s):
        whole, quarter = made(most), made(most // 4)
        # Measured again if they differ too much: another process may have disturbed one of them.
        for _ in range(_TRIES):
            whole_s = _least_s(call, whole)
            if whole_s < _LEAST_S:
                return 1.0
            if (ratio := whole_s / _least_s(call, quarter)) <= LINEAR:
                break
        return ratio


def _least_s(call: Callable[[T], object], value: T) -> float:
    least = float("inf")
    for _ in range(_REPEATS):
        began = time.thread_time()
        try:
            call(value)
        except EndlessError:
            raise
        except Exception:  # noqa: BLE001, S110 - a refusal is an end like any other
            pass
        least = min(least, time.thread_time() - began)
        if least < _LEAST_S or least > _LONG_S:
            break
    return least


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise EndlessError(f"the call did not end within {limit_s:.1f} s of processor time")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
