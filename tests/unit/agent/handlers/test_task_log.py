"""A handler's log names its task."""

import json
import logging

import pytest

from docllm.agent.handlers.task_log import TaskLog
from docllm.producer.text.printable import JsonFormatter


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


def test_a_log_of_json_says_which_task_a_line_is_of(caplog: pytest.LogCaptureFixture) -> None:
    """A program finds all lines of a task; what a handler adds is kept."""
    log = TaskLog("task 7 (b/a)", facts={"batch": "b", "task": "a", "route": "fast"})
    with caplog.at_level(logging.INFO):
        log.info("read %d pages", 3, extra={"attempt": 2})

    found = json.loads(JsonFormatter({"group": "g"}).format(caplog.records[0]))

    assert found["msg"] == "task 7 (b/a): read 3 pages"
    assert (found["group"], found["code"]) == ("g", None)
    assert (found["batch"], found["task"], found["route"], found["attempt"]) == (
        "b",
        "a",
        "fast",
        2,
    )
