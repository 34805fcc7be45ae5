"""A route's own wordings choose the class before those that docllm knows."""

from dataclasses import replace

import pytest

from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Succeeded
from docllm.agent.routes.evidence import by_answer
from docllm.schemas.settings.wordings import Wordings
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, completion, error

WORDINGS = Wordings(
    {
        "TOO_LONG": ("max input reached",),
        "FILTERED": ("/computer says no+/", "finish_reason weird"),
        "RATE": ("prompt is too long",),
        "AUTH": ("who are you",),
    }
)
FACTS_TAUGHT = replace(FACTS, wordings=WORDINGS)


@pytest.mark.parametrize("status", [200, 400, 403, 429, 500])
@pytest.mark.parametrize(
    ("said", "error_class"),
    [
        ("Max input reached", "TOO_LONG"),
        ("the computer says nooo", "FILTERED"),
        ("the prompt is too long", "RATE"),
        ("who are you?", "AUTH"),
    ],
)
def test_a_taught_wording_comes_first(status: int, said: str, error_class: str) -> None:
    """A wording decides under any status, also against the kinds of docllm's own."""
    answer = Reply(status, {}, error(said))

    assert failure_of(judge(answer, FACTS_TAUGHT)).error_class == error_class
    assert by_answer(answer, WORDINGS).error_class == error_class


def test_other_refusals_keep_their_class() -> None:
    """A wording that does not occur changes nothing."""
    assert failure_of(judge(Reply(429, {}, error("wait")), FACTS_TAUGHT)).error_class == "RATE"


def test_an_ending_can_be_taught() -> None:
    """The text of a failure is matched as a person sees it, also that of an answer's ending."""
    answer = Reply(200, {}, completion(content="", reason="weird"))

    assert failure_of(judge(answer, FACTS_TAUGHT)).error_class == "FILTERED"


def test_quoted_text_does_not_match() -> None:
    """A document that is repeated in quotes chooses no class."""
    answer = Reply(400, {}, error("bad value 'The max input reached us late'"))

    assert failure_of(judge(answer, FACTS_TAUGHT)).error_class == "BAD_REQUEST"


def test_an_answer_is_not_matched() -> None:
    """A completion may say anything."""
    answer = Reply(200, {}, completion("max input reached"))

    assert isinstance(judge(answer, FACTS_TAUGHT), Succeeded)


def test_a_taught_refusal_of_one_document_does_not_ask_about_the_key() -> None:
    """A firewall's 403 that was taught as FILTERED is about the document, at the first call."""
    answer = Reply(403, {}, b"<html>Computer says no: computer says no</html>")

    failure = failure_of(judge(answer, FACTS_TAUGHT))

    assert failure.error_class == "FILTERED"
    assert not failure.may_be_of_task
