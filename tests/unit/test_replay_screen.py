"""What became of a replay is told as it is."""

from datetime import datetime

from producer.replay_runs import ItemState, Run, Wish
from producer.replay_screen import result
from producer.selection import Selection


def run_with(counts: dict[ItemState, int]) -> Run:
    return Run(1, "ann", Wish(Selection()), datetime(2026, 1, 31), None, counts)  # noqa: DTZ001 - as the database has it


def test_tasks_that_were_passed_over_may_be_dead_still() -> None:
    """Somebody else replayed them, or their batch was cancelled and they stay as they are: no more is said than is known."""
    assert result(run_with({ItemState.REPLAYED: 2, ItemState.PASSED: 1})) == (
        "2 wait again, 1 passed over: changed meanwhile, or their batch is cancelled"
    )
