"""Fences, tags and thoughts around an answer; answers in other places than the text."""

from dataclasses import replace
from typing import Any

import pytest

from docllm.agent.handlers.calls.results import Answer
from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Retry, Succeeded
from docllm.schemas.task.result.answer import answer_value
from docllm.schemas.task.result.codec import COMPLETION, JSON_COMPLETION
from tests.support.replies import FACTS, completion

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
WITH_SCHEMA = b'{"id":"a","prompt":"p","schema":{}}'
WITHOUT = b'{"id":"a","prompt":"p"}'
JSON = '{"port": 8080}'
WRAPPED = {
    "fence": f"```json\n{JSON}\n```",
    "capitals": f" \n```JSON\r\n{JSON}\r\n```  \n",
    "no language": f"```\n{JSON}\n```",
    "one line": f"```json {JSON}```",
    "tilde": f"~~~~json5\n{JSON}\n~~~~",
    "not closed": f"```json\n{JSON}",
    "not opened fence": f"{JSON}\n```",
    "ticks": f"`{JSON}`",
    "label": f"json\n{JSON}",
    "end mark": f"{JSON}<|im_end|>",
    "end of sequence": f"{JSON}</s>",
    "constrained": f"<|channel|>final <|constrain|>JSON<|message|>{JSON}<|return|>",
    "tag": f"<answer>\n```json\n{JSON}\n```\n</answer>",
    "mark": f"\ufeff{JSON}",
    "think": f"<think>\nA port?\n</think>\n\n{JSON}",
    "capital tag": f"<THINKING>A port?</THINKING>{JSON}",
    "reasoning": f"\n<reasoning>A <b>port</b>?</reasoning>\n```json\n{JSON}\n```",
    "not opened": f'A port, {{"port": 1}}?</think>{JSON}',
    "two": f"<think>a</think>\n<think>b</think>{JSON}",
    "nested": f"<think>a <reasoning>b</reasoning> {{}} </think>{JSON}",
    "brackets": f"[THINK]A port?[/THINK]{JSON}",
    "prefix": f"<seed:think>A port?</seed:think>{JSON}",
    "pipes": f"<|START_THINKING|>A port?<|END_THINKING|>{JSON}",
    "begin of": f"<|begin_of_thought|>A port?<|end_of_thought|>{JSON}",
    "triangles": f"\u25c1think\u25b7A port?\u25c1/think\u25b7{JSON}",
    "channels": "<|channel|>analysis<|message|>A?<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{JSON}",
}


def judged(content: Any, schema: dict[str, Any] | None = SCHEMA, **facts: Any) -> object:
    body = completion(content, message=facts.pop("message", {}))
    return judge(Reply(200, {}, body), replace(FACTS, schema=schema, **facts))


@pytest.mark.parametrize("content", WRAPPED.values(), ids=WRAPPED)
def test_what_surrounds_a_json_answer_is_taken_off(content: str) -> None:
    """Judge, handlers and exports read the same JSON, and the stored bytes stay."""
    outcome = judged(content)

    assert isinstance(outcome, Succeeded)
    assert outcome.body == completion(content)
    assert outcome.codec == COMPLETION
    assert answer_value(WITH_SCHEMA, COMPLETION, outcome.body) == {"port": 8080}
    assert answer_value(WITHOUT, JSON_COMPLETION, outcome.body) == {"port": 8080}
    assert Answer(outcome.body, outcome, JSON_COMPLETION).text == JSON
    assert outcome.oddities == ("a fence or thoughts around it",)


@pytest.mark.parametrize("content", WRAPPED.values(), ids=WRAPPED)
def test_a_strict_type_takes_the_text_alone(content: str) -> None:
    """`strict_answer` is for those who want no guess."""
    outcome = judged(content, strict=True)

    assert isinstance(outcome, Retry)
    assert outcome.failure.text.startswith("the answer is not JSON")


@pytest.mark.parametrize(
    "content",
    [
        f"Here it is:\n```json\n{JSON}\n```",
        f"```json\n{JSON}\n```\nHope this helps.",
        "```json\n```",
        "```",
        "<think>A port?",
        "<think>A port?</think>",
        f"<think>A port?</think>It is {JSON}",
        '<think>A port?</think>{"port": "no"}',
    ],
)
def test_only_what_encloses_the_whole_answer_is_taken_off(content: str) -> None:
    """An answer with a text of its own is sent back to the model, as before."""
    outcome = judged(content)

    assert isinstance(outcome, Retry)
    assert outcome.failure.is_of_answer


@pytest.mark.parametrize("text", ["true", "42", '"```json"', "[]", "null"])
def test_any_json_may_be_in_a_fence(text: str) -> None:
    """A word at the start of a fence is its language only if something follows."""
    for content in (f"```\n{text}\n```", f"```json\n{text}\n```"):
        assert isinstance(judged(content, {"title": "any"}), Succeeded)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>\nWhat?\n</think>\n\nSales rose.", "Sales rose."),
        ("<Thinking>What?</Thinking>\nSales rose. </think>", "Sales rose. </think>"),
        ("What? Sales.\n</think>\n\nSales rose.", "Sales rose."),
        ("What? Sales.</think>\n\nSales rose.", "Sales rose."),
        ("<think>a <think>b</think> c</think>\nSales rose.", "Sales rose."),
    ],
)
def test_thoughts_before_a_text_are_no_part_of_it(content: str, text: str) -> None:
    """Exports and handlers get the answer, of a strict type and an OpenAI line all of it."""
    outcome = judged(content, None)
    assert isinstance(outcome, Succeeded)
    assert answer_value(WITHOUT, outcome.codec, outcome.body) == text
    assert Answer(outcome.body, outcome, outcome.codec).text == text
    assert outcome.oddities == ("thoughts before it",)

    for facts in ({"strict": True}, {"verbatim": True}):
        whole = judged(content, None, **facts)
        assert isinstance(whole, Succeeded)
        assert answer_value(WITHOUT, whole.codec, whole.body) == content
        assert whole.oddities == ()


@pytest.mark.parametrize(
    "content",
    [
        "DeepSeek ends its thoughts with </think> and answers then.",
        "Use\n<think>\nthoughts\n</think>\nfor thoughts.",
        "<think>never closed",
        "It ends with </think>\n\nand answers.",
        "It ends with `</think>`\n\nand answers.",
        "<analysis>Sales</analysis>\n<summary>They rose.</summary>",
        "Sales\n</analysis>\nThey rose.",
        "<b>Sales</b> rose.",
        "```json\n{}\n```",
    ],
)
def test_a_text_that_speaks_of_thoughts_stays(content: str) -> None:
    """Without a schema only thoughts at the very beginning are taken off."""
    outcome = judged(content, None)

    assert isinstance(outcome, Succeeded)
    assert outcome.codec == COMPLETION
    assert answer_value(WITHOUT, outcome.codec, outcome.body) == content


def test_a_large_answer_after_thoughts_is_packed() -> None:
    """The codec of a packed result says the same as that of a small one."""
    outcome = judged("<think>What?</think>" + "Sales rose. " * 1000, None)

    assert isinstance(outcome, Succeeded)
    assert answer_value(WITHOUT, outcome.codec, outcome.body) == "Sales rose. " * 1000


def test_thoughts_alone_are_no_answer() -> None:
    """Nothing is left to export."""
    outcome = judged("<think>What?</think>\n", None)

    assert isinstance(outcome, Retry)
    assert outcome.failure.text == "the answer has 21 characters of thoughts alone"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("content", [None, "", " \n"])
def test_an_answer_that_is_only_in_the_thoughts(name: str, content: str | None) -> None:
    """JSON that fits the schema is the answer; a text of thoughts is none, and is named."""
    fits = judged(content, message={"content": content, name: JSON})
    assert isinstance(fits, Succeeded)
    assert answer_value(WITH_SCHEMA, fits.codec, fits.body) == {"port": 8080}

    for schema, text in ((SCHEMA, "hm" * 600), (None, "hm" * 600)):
        outcome = judged(content, schema, message={"content": content, name: text})
        assert isinstance(outcome, Retry)
        assert f"the answer is empty, while {name} has 1,200 characters" in outcome.failure.text


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "refusal": "I cannot."},
        {"content": [{"type": "refusal", "refusal": "I cannot."}]},
    ],
)
def test_a_refusal_in_a_field_or_a_part_is_one(message: dict[str, Any]) -> None:
    """OpenAI's schema has both."""
    outcome = judged(None, None, message=message)

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "FILTERED"
    assert outcome.failure.text == "the model refused: I cannot."


@pytest.mark.parametrize("content", [{"port": 8080}, [{"port": 8080}], 8080, False])
def test_a_content_that_is_json_is_the_answer_to_a_schema(content: object) -> None:
    """Some gateways parse the answer; a task without a schema expects a text."""
    outcome = judged(content, {"title": "any"})
    assert isinstance(outcome, Succeeded)
    assert answer_value(WITH_SCHEMA, outcome.codec, outcome.body) == content

    refused = judged(content, None)
    assert isinstance(refused, Retry)
    assert "not a text" in refused.failure.text


def test_a_content_that_is_json_must_fit() -> None:
    """It is judged as its text would be."""
    outcome = judged({"port": "no"})

    assert isinstance(outcome, Retry)
    assert "does not fit the schema at /port" in outcome.failure.text
