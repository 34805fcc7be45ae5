"""Replies with a misleading status: an account's fault as a bad request, a false success."""

from dataclasses import replace

import orjson
import pytest

from docllm.agent.judge import CLASSES, Action, Effect, judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Failure
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, class_of, error

REFUSED = [
    (
        400,
        (
            b'{"type":"error","error":{"type":"invalid_request_error","message":"You have '
            b'reached your specified API usage limits."}}'
        ),
        "MONEY",
    ),
    (
        400,
        error(
            "You have reached your specified workspace API usage limits.",
            type="invalid_request_error",
        ),
        "MONEY",
    ),
    (400, error("This organization has been disabled.", type="invalid_request_error"), "AUTH"),
    (
        412,
        error(
            "Account x is suspended, possibly due to reaching the monthly spending limit",
            code="PRECONDITION_FAILED",
        ),
        "MONEY",
    ),
    (
        429,
        (
            b'{"code":"Some resource has been exhausted","error":"Your team x has used all '
            b'credits or reached its monthly spending limit."}'
        ),
        "MONEY",
    ),
    (
        400,
        (
            b'{"code":"Client specified an invalid argument","error":"Incorrect API key '
            b'provided: xa***Q6."}'
        ),
        "AUTH",
    ),
    (
        429,
        error("Your prepayment credits are depleted.", code=429, status="RESOURCE_EXHAUSTED"),
        "MONEY",
    ),
    (
        429,
        error(
            "Your project has exceeded its monthly spending cap.",
            code=429,
            status="RESOURCE_EXHAUSTED",
        ),
        "MONEY",
    ),
    (
        400,
        error("API key expired. Please renew the API key.", code=400, status="INVALID_ARGUMENT"),
        "AUTH",
    ),
    (
        400,
        error("Missing or invalid Authorization header.", code=400, status="INVALID_ARGUMENT"),
        "AUTH",
    ),
    (
        400,
        error(
            "Multiple authentication credentials received. Please pass only one.",
            code=400,
            status="INVALID_ARGUMENT",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "User location is not supported for the API use.",
            code=400,
            status="FAILED_PRECONDITION",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "Gemini API free tier is not available in your country.",
            code=400,
            status="FAILED_PRECONDITION",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "Organization has been restricted.",
            type="invalid_request_error",
            code="organization_restricted",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "The model `x` has been decommissioned",
            type="invalid_request_error",
            code="model_decommissioned",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "The model `x` requires terms acceptance.",
            type="invalid_request_error",
            code="model_terms_required",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "Unable to access non-serverless model x.",
            type="invalid_request_error",
            code="model_not_available",
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "The endpoint for x is not running.",
            type="invalid_request_error",
            code="dedicated_endpoint_not_running",
        ),
        "AUTH",
    ),
    (400, error("x/y is not a valid model ID", code=400), "AUTH"),
    (400, b'{"message":"The provided model identifier is invalid."}', "AUTH"),
    (
        400,
        error(
            "No models loaded. Please load a model.", type="invalid_request_error", param="model"
        ),
        "AUTH",
    ),
    (400, b"Client sent an HTTP request to an HTTPS server.\n", "AUTH"),
    (
        400,
        (
            b"<html><head><title>400 The plain HTTP request was sent to HTTPS "
            b"port</title></head></html>"
        ),
        "AUTH",
    ),
    (
        400,
        b"<html><head><title>400 No required SSL certificate was sent</title></head></html>",
        "AUTH",
    ),
    (400, b"<html><head><title>400 The SSL certificate error</title></head></html>", "AUTH"),
]


@pytest.mark.parametrize(("status", "body", "error_class"), REFUSED)
def test_an_error_that_a_person_must_repair_makes_no_dead_letter(
    status: int, body: bytes, error_class: str
) -> None:
    """Faults that a person must repair make no dead letter: tasks wait uncounted.

    Every task would be refused in the same way.
    """
    assert class_of(status, body) == error_class
    assert CLASSES[ErrorClass[error_class]].route is Effect.LOCKED


TRIED_AGAIN = [
    (
        400,
        error("Failed to generate JSON. Please adjust your prompt.", code="json_validate_failed"),
        "BAD_OUTPUT",
    ),
    (
        400,
        error("Failed to call a function. Please adjust your prompt.", code="tool_use_failed"),
        "BAD_OUTPUT",
    ),
    (
        400,
        error(
            'GroqException - {"error":{"message":"Failed to validate JSON. Please adjust '
            'your prompt."}}',
            code="400",
        ),
        "BAD_OUTPUT",
    ),
    (
        400,
        b'{"error":"The model has crashed without additional information. (Exit code: 6)"}',
        "SERVER",
    ),
    (400, b'{"error":"Model unloaded."}', "SERVER"),
]


@pytest.mark.parametrize(("status", "body", "error_class"), TRIED_AGAIN)
def test_an_error_that_may_pass_is_tried_again(status: int, body: bytes, error_class: str) -> None:
    """Faults that another try may fix are retried: a bad answer, or a model that is away.

    They say nothing against the request.
    """
    assert class_of(status, body) == error_class
    assert CLASSES[ErrorClass[error_class]].action is Action.RETRY


LITELLM_BUDGET = (
    b'{"error":{"message":"Budget has been exceeded! Current cost: 0.002, Max budget: 0.001",'
    b'"type":"budget_exceeded",'
    b'"param":null,"code":"422"}}'
)
# Bodies that providers send, under the statuses that gateways make of them.
ODD_STATUSES = [
    (422, LITELLM_BUDGET, "MONEY"),
    (
        401,
        error(
            "You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"
        ),
        "MONEY",
    ),
    (404, error("Insufficient balance", type="insufficient_balance"), "MONEY"),
    (413, error("Spend limit", type="x", code="organization_spend_limit_exceeded"), "MONEY"),
    (
        500,
        error(
            "limit", type="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}
        ),
        "MONEY",
    ),
    (503, error("Arrearage", type="Arrearage", code="Arrearage"), "MONEY"),
    (403, error("Rate limit reached", type="tokens", code="rate_limit_exceeded"), "RATE"),
    (400, b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}', "RATE"),
    (503, b'[{"error":{"code":503,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]', "RATE"),
    (402, error("Rate limit reached", code="rate_limit_exceeded"), "RATE"),
    (400, error("Slow down", code="slow_down"), "RAMP"),
    (
        500,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        "CAPACITY",
    ),
    (400, error("busy", type="engine_overloaded_error"), "CAPACITY"),
    (404, error("8192 tokens", code="context_length_exceeded"), "TOO_LONG"),
    (503, error("filtered", code="content_filter"), "FILTERED"),
    (500, error("Incorrect API key", code="invalid_api_key"), "AUTH"),
    (503, error("The model `x` does not exist", code="model_not_found"), "AUTH"),
    (
        429,
        b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
        "AUTH",
    ),
    (422, error("Failed to generate JSON.", code="json_validate_failed"), "BAD_OUTPUT"),
]


@pytest.mark.parametrize(("status", "body", "error_class"), ODD_STATUSES)
def test_a_code_in_the_body_outweighs_the_status(
    status: int, body: bytes, error_class: str
) -> None:
    """A code of the body decides, whatever the status.

    LiteLLM answers 422 for an exhausted budget. No status may turn a waiting task into a dead
    letter.
    """
    assert class_of(status, body) == error_class


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


PEG = "The model produced output that does not match the expected peg-native format"
PYDANTIC = (
    "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
    "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema', 'ctx': "
    "{'expected': \"'text' or 'json_object'\"}}\n"
)
ONE_REQUESTS_FAULT = [
    (error(PEG, type="server_error", code=500), "BAD_OUTPUT"),
    (error(PYDANTIC, type="internal_server_error", param=None, code=None), "BAD_REQUEST"),
    (
        error(
            PYDANTIC.replace("1 validation error", "3 validation errors"),
            type="internal_server_error",
        ),
        "BAD_REQUEST",
    ),
]


@pytest.mark.parametrize(("body", "error_class"), ONE_REQUESTS_FAULT)
def test_one_requests_fault_is_no_outage_though_a_server_calls_it_500(
    body: bytes, error_class: str
) -> None:
    """One request's fault is no outage, even as a 500, as llama.cpp and llama-cpp-python send.

    The route goes on for all other tasks.
    """
    assert class_of(500, body) == error_class
    assert CLASSES[ErrorClass[error_class]].route is Effect.UP


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
