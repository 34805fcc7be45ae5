"""The class of a failed reply: what in it chooses the class, and what does not."""

import time
from dataclasses import replace

import orjson
import pytest

from docllm.agent.judge import CLASSES, judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Failure
from docllm.agent.routes.evidence import by_answer
from docllm.schemas.refusals.signals import classify
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.provider_error import ProviderError
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, class_of, error


def test_what_an_error_names_is_kept_as_it_was_sent() -> None:
    """An export shows type, param and code as the provider wrote them."""
    openai = error("Invalid 'n'", type="invalid_request_error", param="n", code=None)
    vllm = b'{"object": "error", "message": "m", "type": "BadRequestError", "code": 400}'
    wrapped = b'[{"error": {"message": "m", "status": "INVALID_ARGUMENT", "code": 400}}]'

    for body, named in (
        (openai, ProviderError("invalid_request_error", "n", None)),
        (vllm, ProviderError("BadRequestError", None, 400)),
        (wrapped, ProviderError(None, None, 400)),
        (b"<html>", ProviderError()),
    ):
        assert classify(400, body).provider_error == named
        assert classify(400, body, cut=True).provider_error == named


def test_a_document_that_is_repeated_in_a_message_does_not_choose_the_class() -> None:
    """A document repeated in a message does not choose the class.

    A server that quotes the request may quote any words, so only the message's beginning is read.
    """
    quoted = (
        "validation error: 'content': '"
        + "Dear customer, " * 50
        + "your credit balance is too low, your input was flagged'"
    )

    assert class_of(400, error(quoted, code=400)) == "BAD_REQUEST"


@pytest.mark.parametrize(
    "quoted",
    [
        (
            "temperature: Input should be a number, input_value='Dear customer, insufficient "
            "balance on...'"
        ),
        "Invalid parameter: 'our spend limit policy'",
        'Invalid value "say \\"your prompt is too long\\", please"',
        "Cannot read `the input was flagged`",
        (
            "[{'type': 'x', 'msg': 'Input should be valid', 'input': 'Dear customer, you don\\'t "
            "have it, insufficient balance'}]"
        ),
        "Cannot read 'Dear customer, you don't have it, insufficient balance'",
        "Cannot read 'Dear customer, insufficient balance" + " and more" * 100,
    ],
)
def test_quoted_text_in_a_message_does_not_choose_the_class(quoted: str) -> None:
    """A message that quotes a document about money or limits parks no route."""
    assert class_of(400, error(quoted)) == "BAD_REQUEST"
    assert class_of(400, quoted.encode()) == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("text", "error_class"),
    [
        ("This model's maximum context length is 8192 tokens, which isn't enough", "TOO_LONG"),
        ("The customers' credit balance is too low, or the partners' is", "MONEY"),
        (
            (
                'AnthropicException - {"error":{"type":"x","message":"Your credit balance is too '
                'low to access"}}'
            ),
            "MONEY",
        ),
        (
            (
                'AnthropicException - b\'{"error":{"message":"Your credit balance is too low to '
                "access\"}}'"
            ),
            "MONEY",
        ),
        ('Error: \'{"error":{"message":"Your credit balance is too low to access"}}\'', "MONEY"),
        (
            (
                "400 - {'error': {'message': \"This model's maximum context length is 4097 "
                "tokens\", 'type': 'x'}}"
            ),
            "TOO_LONG",
        ),
        (
            "400 - {'error': {'message': 'bad input', 'input': 'the credit balance is too low'}}",
            "BAD_REQUEST",
        ),
        ('400 - {"message":"Cannot read \'our spend limit policy\'"}', "BAD_REQUEST"),
        ("`inputs` tokens + `max_new_tokens` must be <= 1512", "TOO_LONG"),
    ],
)
def test_a_message_inside_a_message_chooses_the_class(text: str, error_class: str) -> None:
    """A message inside a message chooses the class; an apostrophe quotes nothing.

    Gateways repeat the provider's error as JSON, or as Python shows it.
    """
    assert class_of(400, error(text)) == error_class


def test_a_cut_error_body_still_chooses_the_class() -> None:
    """A cut error body is read as far as it arrived."""
    assert class_of(400, b'{"error":{"message":"Your credit balance is too low to acc') == "MONEY"


@pytest.mark.parametrize(
    ("status", "body", "error_class"),
    [
        (400, b"", "AMBIGUOUS"),
        (422, b'{"error":{"message":"Your credit bal', "AMBIGUOUS"),
        (400, b'{"error":{"message":"Your credit balance is too low to acc', "MONEY"),
        (413, b"", "TOO_LONG"),
        (403, b"", "AUTH"),
        (429, b"", "RATE"),
        (503, b"", "SERVER"),
    ],
)
def test_a_task_is_not_given_up_for_a_body_that_was_cut_off(
    status: int, body: bytes, error_class: str
) -> None:
    """A cut body that does not name the cause gives up no task.

    Providers send 400 also for a wrong key or an empty account. Otherwise the status alone decides.
    """
    answer = Reply(status, {}, body, cut=True)

    assert failure_of(judge(answer, FACTS)).error_class == error_class
    assert by_answer(answer).reason.startswith(f"{error_class}: {status}")


@pytest.mark.parametrize(
    "filler", ["'", '"', "`", "'a ", '"message":"', "'message': '", "\\", "a'b ", "\\'"]
)
def test_quotes_take_no_time(filler: str) -> None:
    """A hostile message with many quotes is read in a moment."""
    began = time.thread_time()

    class_of(400, error(filler * 10_000))

    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("status", [*range(300, 600), 999])
def test_every_status_has_a_class(status: int) -> None:
    """Every status has a class."""
    assert class_of(status, b"") in CLASSES


@pytest.mark.parametrize(
    ("status", "error_class"),
    [(422, "BAD_REQUEST"), (404, "AUTH"), (500, "SERVER"), (503, "SERVER")],
)
def test_words_decide_under_their_own_statuses_alone(status: int, error_class: str) -> None:
    """Words decide only under their own statuses: a message may repeat a foreign text.

    Such a text parks no route under another status.
    """
    assert (
        class_of(status, error("Budget has been exceeded! Your credit balance is too low"))
        == error_class
    )


@pytest.mark.parametrize(
    ("raw", "error_class", "text"),
    [
        (
            '{"type":"error","error":{"message":"Your credit balance is too low to access"}}',
            "MONEY",
            "Your credit balance is too low",
        ),
        (
            '{"error":{"message":"no such model","code":"model_not_found"}}',
            "AUTH",
            "model_not_found: Provider returned error: no such",
        ),
        ("x/y is not a valid model ID", "AUTH", "400: Provider returned error: x/y is not"),
        (
            '{"error":{"message":"bad top_p: \'your spend limit\'"}}',
            "BAD_REQUEST",
            "error: bad top_p",
        ),
        ("", "BAD_REQUEST", "400: Provider returned error"),
        ("[1", "BAD_REQUEST", "400: Provider returned error: [1"),
    ],
)
def test_the_error_behind_a_gateway_chooses_the_class_and_is_shown(
    raw: str, error_class: str, text: str
) -> None:
    """The error behind a gateway chooses the class and is shown.

    OpenRouter says `Provider returned error` for all of them, and repeats the provider's own error
    beside it.
    """
    body = error("Provider returned error", code=400, metadata={"raw": raw, "provider_name": "X"})
    failure = failure_of(judge(Reply(400, {}, body), FACTS))

    assert failure.error_class == error_class
    assert text in failure.text


@pytest.mark.parametrize("verbatim", [False, True])
@pytest.mark.parametrize(("code", "error_class"), [(429, "RATE"), (402, "MONEY"), (502, "SERVER")])
def test_an_error_in_the_middle_of_an_answer_has_its_own_class(
    code: int, error_class: str, *, verbatim: bool
) -> None:
    """An error in the middle of an answer has its own class.

    OpenRouter puts it into the choice, beside the part of the answer that arrived.
    """
    choice = {
        "finish_reason": "error",
        "error": {"code": code, "message": "cut off upstream"},
        "message": {"content": "Sal"},
    }
    failure = failure_of(
        judge(
            Reply(200, {}, orjson.dumps({"choices": [choice]})), replace(FACTS, verbatim=verbatim)
        )
    )

    assert failure == Failure(ErrorClass[error_class], f"{code}: cut off upstream")


def test_a_condition_that_fails_is_no_matter_of_the_account() -> None:
    """A 412 concerns the account only if its text says so."""
    assert class_of(412, error("If-Match failed")) == "BAD_REQUEST"
