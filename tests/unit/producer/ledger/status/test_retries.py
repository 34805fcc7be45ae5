"""When tasks are tried again is said in times that a person can use."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from docllm.producer.ledger.status.retries import Retries

NOW = datetime(2026, 1, 31, 23, 10)  # noqa: DTZ001 - as the ledger stores it
TIERS = ("30s", "5m", "1h")


def row(attempt: int = 2, *, due_s: float = 1800, until_s: float | None = None, **more: Any) -> Any:
    last_s = due_s if until_s is None else until_s
    times = {"first_at": NOW + timedelta(seconds=due_s), "last_at": NOW + timedelta(seconds=last_s)}
    row = {"n": 1, "type": "document", "attempt": attempt, "max_attempts": 5, "left_s": last_s}
    return SimpleNamespace(**row | times | more)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([row()], "1 waits for its third try at 23:40 UTC, the last at 01:40 UTC"),
        ([row(4)], "1 waits for its last try at 23:40 UTC"),
        (
            [row(7, max_attempts=9)],
            "1 waits for its eighth try at 23:40 UTC, the last at 00:40 UTC",
        ),
        (
            [row(20, max_attempts=22)],
            "1 waits for its next try at 23:40 UTC, the last at 00:40 UTC",
        ),
        (
            [row(4, n=3, until_s=2400)],
            "3 wait for their last try, the first at 23:40 UTC, the last at 23:50 UTC",
        ),
        (
            [row(3, n=2), row(1, due_s=60)],
            "3 wait for their next try, the first at 23:11 UTC, the last at 01:16 UTC",
        ),
        ([row(4, due_s=90_000)], "1 waits for its last try at 2026-02-02T00:10:00Z"),
    ],
)
def test_retries_in_words(rows: list[Any], text: str) -> None:
    """The next attempt, and the last one if all fail: through all tiers in between."""
    retries = Retries.of(rows, lambda _: TIERS)

    assert retries is not None
    assert retries.text == text


def test_a_retry_that_is_due_leaves_no_time() -> None:
    """An agent may be late; no time is below zero."""
    late = Retries.of([row(due_s=-5.0)], lambda _: TIERS)

    assert late is not None
    assert late.left_s == 0.0
    assert Retries.of([], lambda _: TIERS) is None
