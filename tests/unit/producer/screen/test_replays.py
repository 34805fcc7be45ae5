"""The report of a replay's result."""

from datetime import datetime

import pytest

from producer.ledger.selection import Selection
from producer.replay.runs import ItemState, ReplayRequest, Run
from producer.screen.replays import result


def run_with(counts: dict[ItemState, int], chosen: Selection) -> Run:
    # As the database has it.
    return Run(1, "ann", ReplayRequest(chosen), datetime(2026, 1, 31), None, counts)  # noqa: DTZ001


def test_tasks_that_were_passed_over_may_be_dead_still() -> None:
    """Skipped tasks may still be dead, so the report says no more than is known.

    Somebody else replayed them, or their batch was cancelled and they stay as they are.
    """
    assert result(run_with({ItemState.REPLAYED: 2, ItemState.SKIPPED: 1}, Selection())) == (
        "2 wait again, 1 passed over: changed meanwhile, or their batch is cancelled"
    )


@pytest.mark.parametrize(
    "chosen", [Selection(dispositions=("rejected", "undecodable")), Selection(record=7)]
)
def test_records_that_are_tasks_need_not_wait(chosen: Selection) -> None:
    """Replayed records need not wait: a copy of a task that succeeded long ago runs no more."""
    assert (
        result(run_with({ItemState.REPLAYED: 3, ItemState.UNREAD: 1}, chosen))
        == "3 are tasks now, 1 records are still no tasks"
    )


@pytest.mark.parametrize("dispositions", [(), ("permanent",), ("permanent", "rejected")])
def test_tasks_wait_again(dispositions: tuple[str, ...]) -> None:
    """Tasks wait again, also with records among them."""
    assert (
        result(run_with({ItemState.REPLAYED: 3}, Selection(dispositions=dispositions)))
        == "3 wait again"
    )
