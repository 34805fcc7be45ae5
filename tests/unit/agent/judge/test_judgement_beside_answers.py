"""What stands beside an answer: errors that name nothing, and why an answer is empty."""

from typing import Any

import pytest

from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Snooze, Succeeded
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, completion


@pytest.mark.parametrize(
    "error",
    [
        None,
        {},
        {"code": 0, "message": ""},
        {"code": 0, "message": "success"},
        {"code": 200, "message": "OK"},
        {"code": None, "message": None},
        "none",
        False,
    ],
)
def test_an_error_that_names_nothing_does_not_lose_the_answer(error: Any) -> None:
    """Some servers send the field with every answer."""
    assert isinstance(judge(Reply(200, {}, completion(error=error)), FACTS), Succeeded)


@pytest.mark.parametrize("error", [{"code": 502}, {"message": "upstream died"}, "upstream died"])
def test_an_error_that_names_one_is_one(error: Any) -> None:
    """A part of an answer is none."""
    assert failure_of(judge(Reply(200, {}, completion(error=error)), FACTS)) is not None


@pytest.mark.parametrize(
    ("status_msg", "outcome_type", "error_class"),
    [
        ("input new_sensitive", Dead, "FILTERED"),
        ("insufficient balance", Snooze, "MONEY"),
        ("rate limit", Snooze, "RATE"),
    ],
)
def test_what_stands_beside_an_empty_answer_says_why(
    status_msg: str, outcome_type: type, error_class: str
) -> None:
    """The choices of a refused prompt may have an empty message; its tokens are counted."""
    beside = {"status_code": 1000, "status_msg": status_msg}

    outcome = judge(Reply(200, {}, completion("", base_resp=beside)), FACTS)

    assert isinstance(outcome, outcome_type)
    assert failure_of(outcome).error_class == error_class
    assert outcome.spent.tokens_in == 12


def test_what_stands_beside_an_answer_is_not_read() -> None:
    """An answer is an answer, whatever a warning says."""
    beside = {"status_code": 0, "status_msg": "insufficient balance soon"}

    assert isinstance(judge(Reply(200, {}, completion(base_resp=beside)), FACTS), Succeeded)


def test_parts_of_the_responses_api_are_text() -> None:
    """Some gateways pass them on as they are; a NUL after the reply does no harm."""
    body = completion([{"type": "output_text", "text": "Fine."}])

    assert isinstance(judge(Reply(200, {}, body), FACTS), Succeeded)
    assert isinstance(judge(Reply(200, {}, completion() + b"\0"), FACTS), Succeeded)
