"""Lanes: a priority chooses one, and its topic is named after it."""

import pytest

from docllm.schemas.task.record.lanes import (
    DEFAULT_PRIORITY,
    DESTINATIONS,
    TURNS,
    Lane,
    known_lane,
    lane_for,
)


def test_a_priority_chooses_the_lane() -> None:
    """7 to 9 are urgent and 0 to 3 are bulk; a task that names none is a normal one."""
    lanes = [lane_for(priority) for priority in range(10)]

    assert lanes == [Lane.BULK] * 4 + [Lane.NORMAL] * 3 + [Lane.URGENT] * 3
    assert lane_for(DEFAULT_PRIORITY) is Lane.NORMAL


def test_each_lane_has_a_topic_and_a_share() -> None:
    """The normal one has the name that `tasks` always had."""
    assert DESTINATIONS == ("tasks.urgent", "tasks", "tasks.bulk")
    assert TURNS.keys() == set(Lane)


@pytest.mark.parametrize(
    ("stored", "lane"),
    [(0, Lane.NORMAL), (1, Lane.URGENT), (2, Lane.BULK), (3, Lane.NORMAL), (-1, Lane.NORMAL)],
)
def test_a_lane_of_a_newer_version_is_the_normal_one(stored: int, lane: Lane) -> None:
    """A task must run, whatever number another version stored."""
    assert known_lane(stored) is lane
