"""A handler's log names its task."""

import logging

import pytest

from agent.handlers.task_log import TaskLog


def test_a_line_begins_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    """A % in the task's name or in a message without arguments stays as it is."""
    task_log = TaskLog("task 7 (50%s/a)")
    caplog.set_level(logging.INFO)

    task_log.info("found %d of %s", 3, "x")
    task_log.warning("100 % sure")

    assert [record.getMessage() for record in caplog.records] == [
        "task 7 (50%s/a): found 3 of x",
        "task 7 (50%s/a): 100 % sure",
    ]
    assert {record.name for record in caplog.records} == {"handler"}
