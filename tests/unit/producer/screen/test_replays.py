"""The report of a replay's result."""

from dataclasses import replace
from datetime import datetime

import pytest

from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest, ReplayRun
from docllm.producer.replay.following import ReplayReport
from docllm.producer.screen.replays import report_lines, result, run_line, unfinished_line


def run_with(counts: dict[ItemState, int], chosen: Selection) -> ReplayRun:
    # As the database has it.
    return ReplayRun(
        id=1,
        actor="ann",
        request=ReplayRequest(chosen),
        created_at=datetime(2026, 1, 31),  # noqa: DTZ001
        ended_at=None,
        counts=counts,
    )


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
        == "3 are tasks now, 1 record is still no task"
    )


@pytest.mark.parametrize("dispositions", [(), ("permanent",), ("permanent", "rejected")])
def test_tasks_wait_again(dispositions: tuple[str, ...]) -> None:
    """Tasks wait again, also with records among them."""
    assert (
        result(run_with({ItemState.REPLAYED: 3}, Selection(dispositions=dispositions)))
        == "3 wait again"
    )


def test_one_item_is_not_plural() -> None:
    """One task waits, and one record is a task."""
    assert result(run_with({ItemState.REPLAYED: 1}, Selection())) == "1 waits again"
    assert (
        result(run_with({ItemState.REPLAYED: 1, ItemState.UNREAD: 2}, Selection(record=7)))
        == "1 is a task now, 2 records are still no tasks"
    )


def test_an_unfinished_run_says_how_far_it_is_and_whose() -> None:
    """`status` and `--list` name done items, all items, the person and the rate."""
    counts = {ItemState.REPLAYED: 20, ItemState.SKIPPED: 5, ItemState.WAITS: 75}
    paced = replace(run_with(counts, Selection()), request=ReplayRequest(Selection(), rate=5.0))

    assert unfinished_line(paced) == "replay 1 by ann: 25 of 100 done, at most 5/s"
    assert run_line(paced).endswith("75 left of 100; unfinished, at most 5/s")
    assert unfinished_line(run_with(counts, Selection())).endswith("25 of 100 done")


def test_only_the_first_records_that_are_no_tasks_are_named() -> None:
    report = ReplayReport(run_with({ItemState.UNREAD: 30}, Selection(record=1)), unsent=True)

    assert list(report_lines(report, [(1, "bad \x1b[2J"), (2, "cut")])) == [
        "quarantine:1 stays: bad  [2J",
        "quarantine:2 stays: cut",
        "... and 28 more records",
        "some records are not on their topic yet; any agent sends them",
    ]
