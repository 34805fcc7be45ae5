"""`check --llm` asks each account once, and reads the answer as an agent would."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.checks.llm import CheckAnswer, model_and_remark
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.settings.config import LLMConfig, Structured
from tests.unit.producer.checks.test_checklist import LLM, check, configured


def test_each_account_is_asked_once(
    tmp_path: Path, asked: list[LLMConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each account is asked once, in the way agents would ask."""
    toml = (
        LLM
        + """
        [routes.same]
        model = "m"
        [routes.model]
        model = "m2"
        [routes.twin]
        model = "m2"
        [routes.key]
        api_key = "k2"
        model = "m"
        [routes.local]
        base_url = "http://two/v1"
        [types.a]
        route = "same"
        [types.b]
        route = "twin"
    """
    )

    assert check(configured(tmp_path, toml)) == 0

    names = [
        line.split(":")[0].split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()[4:]
    ]
    assert names == ["llm", "route key", "route local", "route model"]
    connections: list[Any] = [
        (llm.base_url, llm.api_key and llm.api_key.reveal(), llm.model) for llm in asked
    ]
    assert connections == [
        ("http://one/v1", "k1", "m"),
        ("http://one/v1", "k2", "m"),
        ("http://two/v1", None, "local"),
        ("http://one/v1", "k1", "m2"),
    ]


def test_routes_are_asked_and_the_missing_llm_is_reported(
    tmp_path: Path, asked: list[LLMConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    """Routes are asked and the missing LLM is reported, because an agent would not start.

    A route without an address of its own cannot be asked.
    """
    code = check(
        configured(
            tmp_path, "[routes.local]\nbase_url = 'http://two/v1'\n[routes.fast]\nmodel = 'm'\n"
        )
    )

    assert code == 2
    assert "FAILED  llm: no LLM is configured" in capsys.readouterr().out
    assert [llm.base_url for llm in asked] == ["http://two/v1"]


JSON = '{"ok": true}'


def body(content: Any = JSON, reason: Any = "stop", **message: Any) -> bytes:
    choice = {"message": {"content": content, **message}, "finish_reason": reason}
    return orjson.dumps({"model": "m", "choices": [choice]})


def remark(
    answer: bytes, *, limited: bool = True, form: Structured = Structured.JSON_SCHEMA
) -> str:
    model, text = model_and_remark(CheckAnswer(200, answer, limited), form, "http://h", "BASE_URL")
    assert model == "m"
    return text


@pytest.mark.parametrize(
    "answer", [body(), body(reason="COMPLETE"), body(None, "length"), body('{"o', "MAX_TOKENS")]
)
def test_a_usual_answer_needs_no_remark(answer: bytes) -> None:
    """The check's own limit may cut the answer."""
    assert remark(answer) == ""


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (body(reason="other"), "finish_reason other"),
        (body(f"```json\n{JSON}\n```"), "a fence or thoughts around it"),
        (body(f"<think>Well.</think>{JSON}"), "a fence or thoughts around it"),
        (body(None, reasoning_content=JSON), "it is in the thoughts"),
        (body().replace(b'"m"', b'"m","logprobs":NaN'), "mended number"),
        (body("Sure, ok!"), "the answer is not JSON"),
        (body("A").replace(b"A", rb"\ud83d"), "mended surrogate); the answer is not JSON"),
        (body("{}"), "the answer does not fit the schema"),
    ],
)
def test_an_odd_answer_is_a_warning(answer: bytes, named: str) -> None:
    """Agents take such answers, or ask the model to correct them."""
    assert named in remark(answer)


@pytest.mark.parametrize("form", [Structured.JSON_OBJECT, Structured.NONE])
def test_other_json_is_an_answer_where_no_schema_was_sent(form: Structured) -> None:
    """The prompt alone asks for it there."""
    assert remark(body('{"n": 1}'), form=form) == ""
    assert "the answer is not JSON" in remark(body("ok"), form=form)


def test_a_cut_answer_without_a_limit_is_a_warning() -> None:
    """The server limits answers by itself."""
    assert "finish_reason length" in remark(body("{", "length"), limited=False)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (body(None, "content_filter"), "FILTERED: finish_reason content_filter"),
        (body(refusal="I cannot say ok."), "FILTERED: the model refused"),
        (body(None), "BAD_OUTPUT: the answer is empty"),
        (body(None, reasoning_content="Hm."), "reasoning_content has 3 characters"),
        (body(None, "tool_calls"), "BAD_OUTPUT: finish_reason tool_calls"),
        (body("", "ERROR"), "SERVER: finish_reason ERROR"),
    ],
)
def test_an_answer_that_agents_cannot_use_fails_the_check(answer: bytes, named: str) -> None:
    """Otherwise the first load would find it out, one task after the other."""
    with pytest.raises(UnsafeStateError) as failed:
        remark(answer)

    assert named in str(failed.value)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (b"", "answers 200, but the reply is empty"),
        (b"data: {}\n\n", "answers 200, but the server streams its answer"),
        (b'{"choices": [', "answers 200, but the reply is not JSON"),
        (b"<html>", "answers, but not with a completion; check BASE_URL"),
        (b'{"choices":[{"message":7}]}', "answers, but not with a completion; check BASE_URL"),
        (b'{"choices":null,"model":"m"}', "answers, but not with a completion; check BASE_URL"),
        (b'{"object":"list","data":[]}', "answers, but not with a completion; check BASE_URL"),
        (b"[]", "answers, but not with a completion; check BASE_URL"),
    ],
)
def test_a_body_that_is_no_completion_is_named(answer: bytes, named: str) -> None:
    """The address is doubted only where nothing else explains the body."""
    with pytest.raises(UnreachableError) as failed:
        remark(answer)

    assert named in str(failed.value)
