"""The judge: each cell of its table, with bodies as providers send them."""

import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agent.outcome import COMPLETION, COMPLETION_ZLIB, Dead, Failure, Retry, Snooze, Spent, Succeeded
from agent.policy import CLASSES, Action, Effect, Terms, effect_of, judge, refused, tiers_of
from agent.policy.signals import TABLE
from agent.ports import CallFailed, Reply
from schemas.config import Price

TERMS = Terms(
    model="m",
    request_id="b/t#1",
    duration_ms=1200,
    attempt=0,
    max_attempts=5,
    snoozes=0,
    tiers=tiers_of(("30s", "5m", "1h")),
    jitter=0.5,
    utc_s=1_800_000_000.0,
)
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


def error(message: str = "", **fields: Any) -> bytes:
    return orjson.dumps({"error": {"message": message, **fields}})


def completion(content: Any = "Fine.", reason: Any = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    return orjson.dumps({"model": "m-1", "choices": [{"message": message, "finish_reason": reason}], "usage": usage, **fields})


def class_of(status: int, body: bytes, **headers: str) -> str:
    outcome = judge(Reply(status, headers, body), TERMS)
    assert isinstance(outcome, Retry | Snooze | Dead)
    return outcome.failure.error_class


PROVIDERS = [
    # OpenAI
    (429, error("Rate limit reached for gpt-4o", type="tokens", code="rate_limit_exceeded"), "RATE"),
    (
        429,
        error(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 30601. The input or "
            "output tokens must be reduced in order to run successfully.",
            type="tokens",
            param=None,
            code="rate_limit_exceeded",
        ),
        "TOO_LONG",
    ),
    (429, error("You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"), "MONEY"),
    (429, error("Spend limit", type="x", code="organization_spend_limit_exceeded"), "MONEY"),
    (429, error("Your account is not active", type="billing_not_active", param=None, code="billing_not_active"), "MONEY"),
    (429, error("Slow down", type="requests", code="slow_down"), "RAMP"),
    (503, error("Slow down", code="slow_down"), "RAMP"),
    (401, error("Incorrect API key provided: sk-proj-abcdefgh", type="invalid_request_error", code="invalid_api_key"), "AUTH"),
    (403, error("Country, region, or territory not supported", code="unsupported_country_region_territory"), "AUTH"),
    (404, error("The model `gpt-9` does not exist", type="invalid_request_error", code="model_not_found"), "AUTH"),
    (400, error("invalid model ID", type="invalid_request_error", param=None, code=None), "AUTH"),
    (400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"), "TOO_LONG"),
    (400, error("Invalid 'messages[0].content': string too long", code="string_above_max_length"), "TOO_LONG"),
    (400, error("Invalid prompt: your prompt was flagged as potentially violating our usage policy", code="invalid_prompt"), "FILTERED"),
    (400, error("Unsupported parameter", type="invalid_request_error", param="max_tokens", code="unsupported_parameter"), "BAD_REQUEST"),
    (500, error("The server had an error", type="server_error", code=None), "SERVER"),
    (503, error("The engine is currently overloaded", type="server_error"), "CAPACITY"),
    # Azure
    (400, error("filtered", code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}), "FILTERED"),
    (400, error("blocked", code="x", innererror={"code": "ResponsibleAIPolicyViolation"}), "FILTERED"),
    (
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            type=None,
            param="prompt",
            status=400,
        ),
        "FILTERED",
    ),
    (429, error("Requests have exceeded token rate limit of your pricing tier. Please retry after 26 seconds.", code="429"), "RATE"),
    (429, error("The system is currently experiencing high demand and cannot process your request.", code="NoCapacity"), "CAPACITY"),
    (401, b'{"statusCode": 401, "message": "Access denied due to invalid subscription key."}', "AUTH"),
    (404, error("The API deployment for this resource does not exist.", code="DeploymentNotFound"), "AUTH"),
    (408, error("The operation was timeout.", code="Timeout"), "SERVER"),
    (424, error("Model error", code="FailedDependency"), "SERVER"),
    # vLLM and SGLang, old and new: the code is an integer, the error may stand at the top level
    (400, error("This model's maximum context length is 4096 tokens.", type="BadRequestError", code=400), "TOO_LONG"),
    (400, b'{"object":"error","message":"maximum context length is 4096","type":"BadRequestError","code":400}', "TOO_LONG"),
    (
        400,
        b'{"object":"error","message":"The input (61709 tokens) is longer than the model\'s context length (40960 tokens).","code":400}',
        "TOO_LONG",
    ),
    (400, b'{"object":"error","message":"bad top_p","type":"BadRequestError","param":null,"code":400}', "BAD_REQUEST"),
    (404, b'{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}', "AUTH"),
    (401, b'{"error":"Unauthorized"}', "AUTH"),
    (500, error("EngineCore encountered an issue.", type="InternalServerError", param=None, code=500), "SERVER"),
    (503, b'{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}', "CAPACITY"),
    # llama.cpp
    (400, error("the request exceeds the available context size", type="exceed_context_size_error", code=400), "TOO_LONG"),
    (500, b'{"error":"context length exceeded"}', "TOO_LONG"),
    (503, error("Loading model", type="unavailable_error", code=503), "CAPACITY"),
    # Text Generation Inference
    (
        422,
        b'{"error":"Input validation error: `inputs` must have less than 2048 tokens. Given: 2222","error_type":"validation"}',
        "TOO_LONG",
    ),
    (422, b'{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512.","error_type":"validation"}', "TOO_LONG"),
    (503, b'{"error":"Model x/y is currently loading","estimated_time":20.0}', "CAPACITY"),
    (424, b'{"error":"Request failed during generation: CUDA error","error_type":"generation"}', "SERVER"),
    (429, b'{"error":"Model is overloaded","error_type":"overloaded"}', "CAPACITY"),
    # LiteLLM names the class in the text
    (400, error("litellm.ContextWindowExceededError: ...", type="invalid_request_error", code="400"), "TOO_LONG"),
    (400, error("litellm.ContentPolicyViolationError: ...", type=None, param=None, code="400"), "FILTERED"),
    (429, error("litellm.RateLimitError: OpenAIException - Rate limit reached", type=None, param=None, code="429"), "RATE"),
    (429, error("No deployments available for selected model, Try again in 5 seconds.", type="None", code="429"), "CAPACITY"),
    (400, error("Budget has been exceeded! Current cost: 10.51, Max budget: 10.0", type="budget_exceeded", code="400"), "MONEY"),
    (429, error("LiteLLM User: engineer-1, exceeded budget for model=x", type="budget_exceeded", code="429"), "MONEY"),
    (400, error("litellm.BadRequestError: OpenAIException - Budget has been exceeded!", type=None, code="400"), "MONEY"),
    (400, error("ExceededBudget: End User=x over budget. Spend=0.0008, Budget=0.0001", type="auth_error", code=400), "MONEY"),
    (400, error("/chat/completions: Invalid model name passed in model=x. Call `/v1/models`", type="None", code="400"), "AUTH"),
    (401, error("Authentication Error, Invalid proxy server token passed", type="auth_error", param="None", code="401"), "AUTH"),
    (500, error("litellm.InternalServerError: AnthropicException - Overloaded", type=None, code="500"), "SERVER"),
    # Anthropic
    (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "CAPACITY"),
    (429, b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}', "RATE"),
    (429, error("limit", type="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}), "MONEY"),
    (400, error("You have reached your specified API usage limits: spend limit reached", type="invalid_request_error"), "MONEY"),
    (400, error("Your credit balance is too low to access the API", type="invalid_request_error"), "MONEY"),
    (400, error("prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"), "TOO_LONG"),
    (
        400,
        error(
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens`",
            type="invalid_request_error",
        ),
        "TOO_LONG",
    ),
    (413, b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}', "TOO_LONG"),
    (400, error("Output blocked by content filtering policy", type="invalid_request_error"), "FILTERED"),
    (400, error("max_tokens: 9000 > 8192, the maximum number of output tokens", type="invalid_request_error"), "BAD_REQUEST"),
    (401, b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}', "AUTH"),
    (500, b'{"type":"error","error":{"type":"api_error","message":"Internal server error"}}', "SERVER"),
    # Ollama
    (404, error('model "llama9" not found, try pulling it first', type="api_error", param=None, code=None), "AUTH"),
    (500, error("llama runner process has terminated: signal: killed", type="api_error", param=None, code=None), "SERVER"),
    (503, b'{"error":"server busy, please try again. maximum pending requests exceeded"}', "CAPACITY"),
    # Gemini and Vertex
    (429, b'[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]', "RATE"),
    (400, b'[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]', "AUTH"),
    (400, error("The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).", code=400), "TOO_LONG"),
    (503, b'[{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]', "CAPACITY"),
    # DeepSeek, OpenRouter, Groq, DashScope, Moonshot, Mistral, FastAPI, proxies
    (402, error("Insufficient Balance", code="invalid_request_error"), "MONEY"),
    (400, error("Model Not Exist", type="invalid_request_error", param=None, code="invalid_request_error"), "AUTH"),
    (402, error("busy", code="in_flight_budget_exhausted"), "CAPACITY"),
    (403, error("Your input was flagged", code=403, metadata={"reasons": ["violence"]}), "FILTERED"),
    (403, error("Forbidden", code=403), "AUTH"),
    (498, error("capacity", code="capacity_exceeded"), "CAPACITY"),
    (413, error("Request too large for model `x` on tokens per minute (TPM): Limit 8000", code="rate_limit_exceeded"), "TOO_LONG"),
    (400, error("Access denied, please make sure your account is in good standing.", type="Arrearage", code="Arrearage"), "MONEY"),
    (400, error("Input data may contain inappropriate content.", code="data_inspection_failed"), "FILTERED"),
    (429, error("Your account is suspended, please check your plan", type="exceeded_current_quota_error"), "MONEY"),
    (429, error("The engine is currently overloaded", type="engine_overloaded_error"), "CAPACITY"),
    (429, b'{"object":"error","message":"Service tier capacity exceeded","type":"service_tier_capacity_exceeded"}', "CAPACITY"),
    (400, b'{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}', "AUTH"),
    (429, error("Resource unavailable on flex", code=429), "CAPACITY"),
    (404, b"404 page not found", "AUTH"),
    (405, b'{"detail":"Method Not Allowed"}', "AUTH"),
    (422, b'{"detail":[{"loc":["body","messages"],"msg":"field required"}]}', "BAD_REQUEST"),
    (502, b"<html><h1>502 Bad Gateway</h1></html>", "SERVER"),
    (504, b"", "SERVER"),
    (524, b"error code: 524", "SERVER"),
    (408, b"", "SERVER"),
    (409, b"", "SERVER"),
    (308, b"", "AUTH"),
    (407, b"", "AUTH"),
    (418, b"", "BAD_REQUEST"),
    (600, b"", "SERVER"),
    # Successes that are none
    (200, error("Provider returned error", code=502), "SERVER"),
    (200, error("Rate limited upstream", code=429), "RATE"),
    (200, error("no code"), "SERVER"),
    (200, b'{"choices":[]}', "SERVER"),
    (200, b'{"choices":[{"text":"legacy"}]}', "SERVER"),
    (200, b"[]", "SERVER"),
    (200, completion(reason="error"), "SERVER"),
    (200, completion(reason="insufficient_system_resource"), "SERVER"),
    (200, b"", "BAD_OUTPUT"),
    (200, b'{"choices":[{"mess', "BAD_OUTPUT"),
    (200, b"<html>captive portal</html>", "BAD_OUTPUT"),
    (200, completion(content=None), "BAD_OUTPUT"),
    (200, completion(content=" \n"), "BAD_OUTPUT"),
    (200, completion(reason="tool_calls"), "BAD_OUTPUT"),
    (200, completion(reason="something_new"), "BAD_OUTPUT"),
    (200, completion(reason=["stop"]), "BAD_OUTPUT"),
    (200, completion(content=None, reason="length"), "TOO_LONG"),
    (200, completion(reason="max_tokens"), "TOO_LONG"),
    (200, completion(reason="content_filter"), "FILTERED"),
    (200, completion(message={"refusal": "I cannot help with that."}), "FILTERED"),
]


@pytest.mark.parametrize(("status", "body", "error_class"), PROVIDERS)
def test_class_of_what_providers_send(status: int, body: bytes, error_class: str) -> None:
    """Each reply that is known from a provider has the class that the table gives it."""
    assert class_of(status, body) == error_class


def test_every_class_of_a_call_is_met_above() -> None:
    """The replies above leave out no class that a reply can have, and the table of signals names none that does not exist."""
    met = {error_class for _, _, error_class in PROVIDERS}
    handlers = {"HANDLER", "HANDLER_GAVE_UP", "DOCUMENT_REFUSED", "DOCUMENT_CHANGED", "DOCUMENT_UNREADABLE"}
    local = {"NETWORK", "AMBIGUOUS", "REPLY_TOO_LARGE", *handlers}

    assert met | local == set(CLASSES)
    assert {row.error_class for row in TABLE} <= met


def test_a_document_that_is_repeated_in_a_message_does_not_choose_the_class() -> None:
    """A server that quotes the request may quote any words; only the beginning of its message is read."""
    quoted = "validation error: 'content': '" + "Dear customer, " * 50 + "your credit balance is too low, your input was flagged'"

    assert class_of(400, error(quoted, code=400)) == "BAD_REQUEST"


@pytest.mark.parametrize("status", [*range(300, 600), 999])
def test_every_status_has_a_class(status: int) -> None:
    """No status is left without a class."""
    assert class_of(status, b"") in CLASSES


# ---- the table of classes: every class against every case


SNOOZED, RETRIED, DEAD = "snoozed", "retried", "dead"
CASES: dict[str, tuple[dict[str, Any], str | None]] = {
    "first attempt": ({}, None),
    "second attempt": ({"attempt": 1}, None),
    "attempt beyond the tiers": ({"attempt": 3}, None),
    "last attempt": ({"attempt": 4}, None),
    "one attempt in all": ({"max_attempts": 1}, None),
    "more attempts than are allowed": ({"attempt": 9}, None),
    "asked for less than the tier": ({}, "20"),
    "asked for more than the tier": ({}, "60"),
    "asked for more than any tier": ({}, "7200"),
    "asked for more than a day": ({}, "9999999"),
    "asked for on the last attempt": ({"attempt": 4}, "60"),
}
# What becomes of a class of each action, case by case: the outcome, and the seconds that it waits, with a jitter of one half.
BECOMES = {
    Action.SNOOZE: {
        "first attempt": (SNOOZED, 1.5),
        "second attempt": (SNOOZED, 1.5),
        "attempt beyond the tiers": (SNOOZED, 1.5),
        "last attempt": (SNOOZED, 1.5),
        "one attempt in all": (SNOOZED, 1.5),
        "more attempts than are allowed": (SNOOZED, 1.5),
        "asked for less than the tier": (SNOOZED, 21),
        "asked for more than the tier": (SNOOZED, 63),
        "asked for more than any tier": (SNOOZED, 7560),
        "asked for more than a day": (SNOOZED, 90_720),
        "asked for on the last attempt": (SNOOZED, 63),
    },
    Action.RETRY: {
        "first attempt": (RETRIED, "30s", 33),
        "second attempt": (RETRIED, "5m", 330),
        "attempt beyond the tiers": (RETRIED, "1h", 3960),
        "last attempt": (DEAD, "exhausted"),
        "one attempt in all": (DEAD, "exhausted"),
        "more attempts than are allowed": (DEAD, "exhausted"),
        "asked for less than the tier": (RETRIED, "30s", 33),
        "asked for more than the tier": (RETRIED, "5m", 330),
        "asked for more than any tier": (RETRIED, "1h", 7920),
        "asked for more than a day": (RETRIED, "1h", 95_040),
        "asked for on the last attempt": (DEAD, "exhausted"),
    },
    Action.GIVE_UP: dict.fromkeys(CASES, (DEAD, "permanent")),
}


def became(outcome: object) -> tuple[object, ...]:
    match outcome:
        case Snooze(_, _, delay_s):
            return SNOOZED, pytest.approx(delay_s)
        case Retry(_, _, tier, delay_s):
            return RETRIED, tier, pytest.approx(delay_s)
        case Dead(_, _, disposition):
            return DEAD, disposition
    raise AssertionError(outcome)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CLASSES)
def test_every_cell_of_the_table(name: str, case: str) -> None:
    """What becomes of each class in each case: snoozed uncounted, sent to a tier and counted, or given up."""
    changes, asked = CASES[case]
    headers = {} if asked is None else {"retry-after": asked}

    outcome = refused(Failure(name, "x"), Spent(), replace(TERMS, **changes), headers)

    assert became(outcome) == BECOMES[CLASSES[name].action][case]
    assert outcome.failure == Failure(name, "x")


def test_each_class_stands_where_it_belongs() -> None:
    """Nobody's fault is snoozed, what may do better is retried, and what fails again is given up."""
    by_action = {action: {row.name for row in CLASSES.values() if row.action is action} for action in Action}

    assert by_action[Action.SNOOZE] == set("RATE RAMP CAPACITY MONEY AUTH".split())
    assert by_action[Action.RETRY] == set("SERVER NETWORK AMBIGUOUS BAD_OUTPUT HANDLER DOCUMENT_UNREADABLE".split())


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (Effect.OUTAGE, "SERVER NETWORK AMBIGUOUS"),
        (Effect.REFUSAL, "RATE RAMP CAPACITY"),
        (Effect.LOCKED, "MONEY AUTH"),
        (Effect.UP, "BAD_OUTPUT TOO_LONG FILTERED BAD_REQUEST REPLY_TOO_LARGE"),
        (Effect.NONE, "HANDLER HANDLER_GAVE_UP DOCUMENT_UNREADABLE DOCUMENT_REFUSED DOCUMENT_CHANGED"),
    ],
)
def test_what_a_class_tells_of_its_route(effect: Effect, names: str) -> None:
    """An outage is a failure for the breaker; an answer about one task proves that the provider works."""
    assert {row.name for row in CLASSES.values() if row.route is effect} == set(names.split())
    assert {effect_of(name) for name in names.split()} == {effect}


def test_a_class_that_the_judge_does_not_make_tells_nothing_of_the_route() -> None:
    """A task that expired, or met a bug of ours, says nothing about the provider."""
    assert {effect_of(name) for name in ("EXPIRED", "INTERNAL", "UNDECODABLE")} == {Effect.NONE}


@pytest.mark.parametrize("name", [row.name for row in CLASSES.values() if row.action is Action.SNOOZE])
def test_a_fault_that_is_not_the_tasks_never_kills_it(name: str) -> None:
    """A thousand snoozes on the last attempt: an outage of quota or money still gives up no task."""
    outcome = judge(CallFailed(name, "x"), replace(TERMS, attempt=4, snoozes=1000))

    assert isinstance(outcome, Snooze)
    assert 1 <= outcome.delay_s <= 60


def test_a_type_may_wait_longer() -> None:
    """The least wait of a type raises the tier as a Retry-After does, and the longer of the two wins."""
    patient = replace(TERMS, least_s=120.0)

    assert became(refused(Failure("SERVER", "x"), Spent(), patient)) == (RETRIED, "5m", 330)
    assert became(refused(Failure("SERVER", "x"), Spent(), patient, {"retry-after": "400"})) == (RETRIED, "1h", 3960)
    assert became(refused(Failure("RATE", "x"), Spent(), patient)) == (SNOOZED, 1.5)


def test_bad_output_is_tried_again_while_attempts_are_left() -> None:
    """An answer that cannot be used climbs the tiers, and is exhausted with the budget."""
    ended = [became(judge(Reply(200, {}, b"{"), replace(TERMS, attempt=attempt)))[:2] for attempt in range(5)]

    assert ended == [(RETRIED, "30s"), (RETRIED, "5m"), (RETRIED, "1h"), (RETRIED, "1h"), (DEAD, "exhausted")]


# ---- success


def test_success_is_stored_as_received() -> None:
    """The body of an answer is kept byte for byte, with what it used and what that cost."""
    terms = replace(TERMS, prices={"m-1": Price(2.0, 10.0)})

    outcome = judge(Reply(200, {"x-request-id": "req_1"}, completion()), terms)

    assert isinstance(outcome, Succeeded)
    assert (outcome.body, outcome.codec) == (completion(), COMPLETION)
    spent = outcome.spent
    assert (spent.model, spent.tokens_in, spent.tokens_out, spent.cost_micro) == ("m-1", 12, 3, 54)
    assert (spent.trace_id, spent.duration_ms) == ("req_1", 1200)


def test_a_large_success_is_packed() -> None:
    """From 4 KiB on the stored body is compressed, and unpacks to what was received."""
    body = completion("long " * 2000)

    outcome = judge(Reply(200, {}, body), TERMS)

    assert isinstance(outcome, Succeeded)
    assert outcome.codec == COMPLETION_ZLIB
    assert zlib.decompress(outcome.body) == body


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": 5, "output_tokens": 6}, (5, 6)),
        ({"prompt_tokens": 0, "completion_tokens": 4}, (0, 4)),
        ({"prompt_tokens": "7", "completion_tokens": -1}, (0, 0)),
        ({"prompt_tokens": True, "completion_tokens": 10**15}, (0, 2**31 - 1)),
        ([], (0, 0)),
        (None, (0, 0)),
    ],
)
def test_usage_is_read_or_zero(usage: Any, tokens: tuple[int, int]) -> None:
    """Usage is read under the names in use; what is unknown or no count is 0."""
    outcome = judge(Reply(200, {}, completion(usage=usage)), TERMS)

    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == tokens


def test_tokens_of_a_bad_answer_are_counted() -> None:
    """An answer that cannot be used was paid for all the same."""
    outcome = judge(Reply(200, {}, completion(reason="length")), TERMS)

    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == (12, 3)


def test_without_a_providers_id_ours_is_the_trace() -> None:
    """A call that the provider did not number is found by our request id."""
    assert judge(CallFailed("NETWORK", "x"), TERMS).spent.trace_id == "b/t#1"


@pytest.mark.parametrize("reason", [None, "stop", "end_turn"])
def test_an_answer_that_ended_well(reason: str | None) -> None:
    """The names of a good end are taken, and a missing one where there is an answer."""
    assert isinstance(judge(Reply(200, {}, completion(reason=reason)), TERMS), Succeeded)


@pytest.mark.parametrize("reason", ["length", "tool_calls", "content_filter", "something_new", None])
def test_a_verbatim_task_takes_any_answer(reason: str | None) -> None:
    """An OpenAI line gets what the batch API would have given it: the whole completion, however it ended."""
    outcome = judge(Reply(200, {}, completion(content=None, reason=reason)), replace(TERMS, verbatim=True))

    assert isinstance(outcome, Succeeded)


def test_a_verbatim_task_does_not_take_an_error() -> None:
    """A gateway's error inside a success is no answer, not even verbatim."""
    outcome = judge(Reply(200, {}, completion(reason="error")), replace(TERMS, verbatim=True))

    assert isinstance(outcome, Retry)


def test_answer_that_fits_the_schema() -> None:
    """A task with a schema takes JSON that fits it."""
    assert isinstance(judge(Reply(200, {}, completion('{"total": 3}')), replace(TERMS, schema=SCHEMA)), Succeeded)


@pytest.mark.parametrize("content", ['{"total": "secret words"}', "{}", "null", "not JSON", '```json\n{"total": 3}\n```'])
def test_answer_that_does_not_fit_the_schema(content: str) -> None:
    """Anything else is a bad output, whose text does not repeat the answer."""
    outcome = judge(Reply(200, {}, completion(content)), replace(TERMS, schema=SCHEMA))

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"
    assert "secret" not in outcome.failure.text


def test_error_texts_hold_no_key() -> None:
    """A key that the provider repeats in its message is masked, and the text is one short line."""
    body = error("Incorrect API key provided:\n sk-proj-abcdefgh1234. " + "x" * 5000, code="invalid_api_key")

    outcome = judge(Reply(401, {}, body), TERMS)

    assert isinstance(outcome, Snooze)
    assert "abcdefgh" not in outcome.failure.text
    assert outcome.failure.text.startswith("401 invalid_api_key: Incorrect API key provided: ***")
    assert len(outcome.failure.text) <= 500
    assert "\n" not in outcome.failure.text


def test_retry_after_is_obeyed() -> None:
    """What the provider asks for is the least that a task waits."""
    outcome = judge(Reply(429, {"retry-after": "20"}, b""), TERMS)

    assert isinstance(outcome, Snooze)
    assert 20 <= outcome.delay_s <= 22


@pytest.mark.parametrize(
    ("status", "code", "seconds"),
    [(429, "rate_limit_exceeded", 360), (429, "slow_down", None), (503, "engine_overloaded", None), (402, "", None)],
)
def test_a_rate_limits_reset_is_obeyed_by_that_class_alone(status: int, code: str, seconds: float | None) -> None:
    """Only a task that met the rate limit waits until it is reset; the other refusals back off."""
    headers = {"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}

    outcome = judge(Reply(status, headers, error(code=code)), TERMS)

    assert became(outcome) == (SNOOZED, 1.5 if seconds is None else seconds * 1.05)
