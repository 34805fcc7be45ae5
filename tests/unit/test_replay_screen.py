"""What became of a replay is told as it is."""

from datetime import datetime

import pytest

from producer.replay_runs import ItemState, Run, Wish
from producer.replay_screen import result
from producer.selection import Selection


def run_with(counts: dict[ItemState, int], chosen: Selection) -> Run:
    return Run(1, "ann", Wish(chosen), datetime(2026, 1, 31), None, counts)  # noqa: DTZ001 - as the database has it


def test_tasks_that_were_passed_over_may_be_dead_still() -> None:
    """Somebody else replayed them, or their batch was cancelled and they stay as they are: no more is said than is known."""
    assert result(run_with({ItemState.REPLAYED: 2, ItemState.PASSED: 1}, Selection())) == (
        "2 wait again, 1 passed over: changed meanwhile, or their batch is cancelled"
    )


@pytest.mark.parametrize("chosen", [Selection(dispositions=("rejected", "undecodable")), Selection(record=7)])
def test_records_that_are_tasks_need_not_wait(chosen: Selection) -> None:
    """A copy of a task that succeeded long ago is a task, and nothing runs again."""
    assert result(run_with({ItemState.REPLAYED: 3, ItemState.UNREAD: 1}, chosen)) == "3 are tasks now, 1 records are still no tasks"


@pytest.mark.parametrize("dispositions", [(), ("permanent",), ("permanent", "rejected")])
def test_tasks_wait_again(dispositions: tuple[str, ...]) -> None:
    """Also where records may be among them."""
    assert result(run_with({ItemState.REPLAYED: 3}, Selection(dispositions=dispositions))) == "3 wait again"
