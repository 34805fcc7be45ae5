"""The class of a reply by its status, codes and wording, on a corpus of many providers' bodies.

Each line of `wordings.jsonl` is `[provider, status, body, class]`; the body is JSON, or a text.
"""

from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.judge import CLASSES, judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Dead, Snooze
from docllm.schemas.refusals.error_body import MAX_PARTS, read_value
from docllm.schemas.refusals.signals import TABLE
from docllm.schemas.refusals.words import words_of, words_of_text
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, class_of, completion, error

CORPUS = [
    orjson.loads(line)
    for line in Path(__file__).with_name("wordings.jsonl").read_bytes().splitlines()
]
# The classes that no reply has.
OURS = set("NETWORK AMBIGUOUS REPLY_TOO_LARGE INPUT_CUT HANDLER HANDLER_GAVE_UP".split()) | set(
    "DOCUMENT_REFUSED DOCUMENT_CHANGED DOCUMENT_UNREADABLE OUTPUT_UNWRITABLE OUTPUT_REFUSED".split()
)


def raw(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else orjson.dumps(body)


@pytest.mark.parametrize(("provider", "status", "body", "error_class"), CORPUS)
def test_each_refusal_of_the_corpus_has_its_class(
    provider: str, status: int, body: Any, error_class: str
) -> None:
    """Each body has its class: of what a person must repair, of what may pass, of its own fault."""
    assert class_of(status, raw(body)) == error_class, provider


def test_the_corpus_is_of_many_providers_and_of_every_class() -> None:
    """The corpus is broad enough to hold the kinds, not the sentences."""
    assert len(CORPUS) >= 300
    assert len({provider for provider, *_ in CORPUS}) >= 50
    assert {error_class for *_, error_class in CORPUS} == set(CLASSES) - OURS
    assert {row.error_class for row in TABLE} <= set(CLASSES) - OURS


SAYS = "prompt is too long: 9000 tokens > 8192 maximum"
SHAPES = [
    {"error": SAYS},
    {"error": {"message": SAYS}},
    {"error": {"error": {"error": {"msg": SAYS}}}},
    {"detail": SAYS},
    {"detail": [{"loc": ["body"], "msg": SAYS, "input": "x"}]},
    {"errors": [SAYS]},
    {"errors": [{"code": 7, "message": SAYS}]},
    {"base_resp": {"status_code": 2013, "status_msg": SAYS}},
    {"error_code": 336, "error_msg": SAYS},
    {"Response": {"Error": {"Code": "Invalid", "Message": SAYS}}},
    {"error": {"message": orjson.dumps({"error": {"message": SAYS}}).decode()}},
    {"error": {"message": "upstream said " + orjson.dumps({"msg": SAYS}).decode()}},
    [{"error": {"message": SAYS}}],
    {"fehler": {"grund": SAYS}},
    {"title": "Bad Request", "errors": {"body": [SAYS]}, "error": SAYS},
    SAYS,
]


@pytest.mark.parametrize("status", [200, 400, 403, 404, 422, 500, 503])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_wording_decides_in_any_shape_and_status(shape: Any, status: int) -> None:
    """A wording decides in any shape of JSON, in a text, and under any status."""
    failure = failure_of(judge(Reply(status, {}, raw(shape)), FACTS))

    assert failure.error_class == "TOO_LONG"
    assert "9000 tokens" in failure.text


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
        {"choices": None, "prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"}},
        {"blockReason": "PROHIBITED_CONTENT"},
    ],
)
def test_a_blocked_prompt_is_dead_at_once_with_its_reason(body: Any) -> None:
    """A prompt that was blocked, without choices, costs one call; the letter names the reason."""
    outcome = judge(Reply(200, {}, raw(body)), FACTS)

    assert isinstance(outcome, Dead)
    assert outcome.failure.error_class == "FILTERED"
    assert "PROHIBITED_CONTENT" in outcome.failure.text


def test_results_of_a_filter_block_only_what_they_filtered() -> None:
    """A filter's results without a filtered category say nothing against the prompt."""

    def reply(*, filtered: bool) -> bytes:
        results = {"hate": {"filtered": filtered, "severity": "high"}}
        return raw({"choices": [], "prompt_filter_results": [{"content_filter_results": results}]})

    assert class_of(200, reply(filtered=True)) == "FILTERED"
    assert class_of(200, reply(filtered=False)) == "SERVER"


def test_a_rate_limit_within_a_success_is_waited_for() -> None:
    """A rate limit that comes as 200 snoozes the task, uncounted, as a 429 does."""
    body = raw({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}})

    outcome = judge(Reply(200, {"retry-after": "7"}, body), FACTS)

    assert isinstance(outcome, Snooze)
    assert outcome.delay_s >= 7.0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"choices":[],"flavour":"salty"}', 'choices with a message: {"choices":[]'),
        (b'{"choices":[{"text":"legacy"}]}', '{"choices":[{"text":"legacy"}]}'),
        (b'{"state":{"why":"the moon is full"}}', "200: the moon is full"),
        (b"the moon is full", "200: the moon is full"),
        (b"{}", "does llm.base_url name an OpenAI-compatible API?"),
        (b"[]", "does llm.base_url name an OpenAI-compatible API?"),
        (b"<html></html>", "does llm.base_url name an OpenAI-compatible API?"),
        (b"<html>portal</html>", "llm.base_url name an OpenAI-compatible API? It says: portal"),
    ],
)
def test_the_providers_own_text_is_kept_in_the_letter(body: bytes, text: str) -> None:
    """A success of an unknown shape keeps its own text; only silence asks about the address."""
    failure = failure_of(judge(Reply(200, {}, body), FACTS))

    assert failure.error_class == "SERVER"
    assert text in failure.text
    assert ("base_url" in text) == ("base_url" in failure.text)


@pytest.mark.parametrize("name", ["input", "content", "messages", "prompt", "body", "ctx"])
def test_a_repeated_request_beside_a_message_does_not_choose_the_class(name: str) -> None:
    """A document that a server repeats in its error is not read."""
    document = "the prompt is too long, your credit balance is too low, content policy violation"
    body = {"detail": [{"loc": ["body"], "msg": "Field required", name: {"text": document}}]}

    assert class_of(422, raw(body)) == "BAD_REQUEST"


def test_an_answer_beside_an_error_does_not_choose_the_class() -> None:
    """The part of an answer that arrived before an error is not read either."""
    choice = {
        "error": {"message": "cut off", "code": 502},
        "message": {"content": "Your prompt is too long"},
    }

    assert class_of(200, raw({"choices": [choice]})) == "SERVER"


def test_styles_of_a_page_do_not_choose_the_class() -> None:
    """Words in the head of a page, such as `max-width` and `text`, are no wording."""
    style = "body{max-width:40em;text-align:left;font-size:large;content:'prompt too long'}"
    page = f"<html><head><style>{style}</style><title>Forbidden</title></head><body>no</body>"

    assert class_of(400, page.encode()) == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RateLimitError: 4,096", " rate limit error 4,096 "),
        ("max_tokens <= -186!", " max~tokens <= -186 "),
        ("Prompt 超长", " prompt 超长 "),
        ("", "  "),
    ],
)
def test_names_of_errors_become_words(text: str, words: str) -> None:
    """Names become words; a parameter's name stays whole, and a number keeps its sign."""
    assert words_of(text) == words


def test_a_completion_is_never_read_for_wordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A success with an answer does not look at words at all."""
    monkeypatch.setattr("docllm.schemas.refusals.signals.words_of_text", None)
    monkeypatch.setattr("docllm.schemas.refusals.kinds.Rule.fits", None)

    assert judge(Reply(200, {}, completion("Your prompt is too long")), FACTS).spent.tokens_in


def test_what_is_read_of_an_error_is_bounded() -> None:
    """A large error costs no more words than a small one: only its shown part is classified."""
    read: list[int] = []

    def counting(text: str) -> str:
        read.append(len(text))
        return words_of_text(text)

    for size in (1_000, 64_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("docllm.schemas.refusals.signals.words_of_text", counting)
            class_of(400, error("salt and pepper " * (size // 16)))

    assert read[0] == read[1]


def test_the_parts_that_are_read_of_an_error_are_bounded() -> None:
    """Lists within lists are parts, too: what is read of them does not grow with their number."""

    def nested(width: int, depth: int = 7) -> Any:
        return [nested(width, depth - 1)] * width if depth else "{}"

    read: list[int] = []
    for width in (2, 4, 8):
        with pytest.MonkeyPatch.context() as patch:
            texts: list[str] = []
            patch.setattr("docllm.schemas.refusals.error_body.parsed_within", texts.append)
            read_value({"errors": nested(width)})
        read.append(len(texts))

    assert max(read) <= MAX_PARTS * 8
