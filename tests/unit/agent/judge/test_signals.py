"""The class of a failed reply, with bodies as providers send them."""

import time

import pytest

from docllm.agent.judge import CLASSES, judge
from docllm.agent.ports import Reply
from docllm.agent.routes.evidence import by_answer
from docllm.schemas.refusals.signals import TABLE, classify
from docllm.schemas.task.provider_error import ProviderError
from tests.support.handlers import failure_of
from tests.support.replies import FACTS, class_of, completion, error

PROVIDERS = [
    # OpenAI
    (
        429,
        error("Rate limit reached for gpt-4o", type="tokens", code="rate_limit_exceeded"),
        "RATE",
    ),
    (
        429,
        error(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): "
            "Limit 30000, Requested 30601. The input or "
            "output tokens must be reduced in order to run successfully.",
            type="tokens",
            param=None,
            code="rate_limit_exceeded",
        ),
        "TOO_LONG",
    ),
    (
        429,
        error(
            "You exceeded your current quota", type="insufficient_quota", code="insufficient_quota"
        ),
        "MONEY",
    ),
    (429, error("Spend limit", type="x", code="organization_spend_limit_exceeded"), "MONEY"),
    (
        429,
        error(
            "Your account is not active",
            type="billing_not_active",
            param=None,
            code="billing_not_active",
        ),
        "MONEY",
    ),
    (429, error("Slow down", type="requests", code="slow_down"), "RAMP"),
    (503, error("Slow down", code="slow_down"), "RAMP"),
    (
        401,
        error(
            "Incorrect API key provided: sk-proj-abcdefgh",
            type="invalid_request_error",
            code="invalid_api_key",
        ),
        "AUTH",
    ),
    (
        403,
        error(
            "Country, region, or territory not supported",
            code="unsupported_country_region_territory",
        ),
        "AUTH",
    ),
    (
        404,
        error(
            "The model `gpt-9` does not exist", type="invalid_request_error", code="model_not_found"
        ),
        "AUTH",
    ),
    (400, error("invalid model ID", type="invalid_request_error", param=None, code=None), "AUTH"),
    (
        400,
        error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"),
        "TOO_LONG",
    ),
    (
        400,
        error("Invalid 'messages[0].content': string too long", code="string_above_max_length"),
        "TOO_LONG",
    ),
    (
        400,
        error(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy",
            code="invalid_prompt",
        ),
        "FILTERED",
    ),
    (
        400,
        error(
            "Unsupported parameter",
            type="invalid_request_error",
            param="max_tokens",
            code="unsupported_parameter",
        ),
        "BAD_REQUEST",
    ),
    (500, error("The server had an error", type="server_error", code=None), "SERVER"),
    (503, error("The engine is currently overloaded", type="server_error"), "CAPACITY"),
    # Azure
    (
        400,
        error(
            "filtered", code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}
        ),
        "FILTERED",
    ),
    (
        400,
        error("blocked", code="x", innererror={"code": "ResponsibleAIPolicyViolation"}),
        "FILTERED",
    ),
    (
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.",
            type=None,
            param="prompt",
            status=400,
        ),
        "FILTERED",
    ),
    (
        429,
        error(
            "Requests have exceeded token rate limit of your pricing tier. Please retry "
            "after 26 seconds.",
            code="429",
        ),
        "RATE",
    ),
    (
        429,
        error(
            "The system is currently experiencing high demand and cannot process your request.",
            code="NoCapacity",
        ),
        "CAPACITY",
    ),
    (
        401,
        b'{"statusCode": 401, "message": "Access denied due to invalid subscription key."}',
        "AUTH",
    ),
    (
        404,
        error("The API deployment for this resource does not exist.", code="DeploymentNotFound"),
        "AUTH",
    ),
    (408, error("The operation was timeout.", code="Timeout"), "SERVER"),
    (424, error("Model error", code="FailedDependency"), "SERVER"),
    # vLLM and SGLang, old and new: the code is an integer, the error may stand at the top level
    (
        400,
        error(
            "This model's maximum context length is 4096 tokens.", type="BadRequestError", code=400
        ),
        "TOO_LONG",
    ),
    (
        400,
        (
            b'{"object":"error","message":"maximum context length is 4096",'
            b'"type":"BadRequestError","code":400}'
        ),
        "TOO_LONG",
    ),
    (
        400,
        (
            b'{"object":"error","message":"The input (61709 tokens) is longer than the model\'s '
            b'context length (40960 tokens).","code":400}'
        ),
        "TOO_LONG",
    ),
    (
        400,
        (
            b'{"object":"error","message":"bad top_p","type":"BadRequestError","param":null,'
            b'"code":400}'
        ),
        "BAD_REQUEST",
    ),
    (
        404,
        (
            b'{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError",'
            b'"param":null,"code":404}'
        ),
        "AUTH",
    ),
    (401, b'{"error":"Unauthorized"}', "AUTH"),
    (
        500,
        error("EngineCore encountered an issue.", type="InternalServerError", param=None, code=500),
        "SERVER",
    ),
    (
        503,
        (
            b'{"object":"error","message":"The request queue is full.","type":"503","param":null,'
            b'"code":503}'
        ),
        "CAPACITY",
    ),
    # llama.cpp
    (
        400,
        error(
            "the request exceeds the available context size",
            type="exceed_context_size_error",
            code=400,
        ),
        "TOO_LONG",
    ),
    (500, b'{"error":"context length exceeded"}', "TOO_LONG"),
    (503, error("Loading model", type="unavailable_error", code=503), "CAPACITY"),
    # Text Generation Inference
    (
        422,
        (
            b'{"error":"Input validation error: `inputs` must have less than 2048 tokens. Given: '
            b'2222","error_type":"validation"}'
        ),
        "TOO_LONG",
    ),
    (
        422,
        (
            b'{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= '
            b'1512.","error_type":"validation"}'
        ),
        "TOO_LONG",
    ),
    (503, b'{"error":"Model x/y is currently loading","estimated_time":20.0}', "CAPACITY"),
    (
        424,
        b'{"error":"Request failed during generation: CUDA error","error_type":"generation"}',
        "SERVER",
    ),
    (429, b'{"error":"Model is overloaded","error_type":"overloaded"}', "CAPACITY"),
    # LiteLLM names the class in the text
    (
        400,
        error("litellm.ContextWindowExceededError: ...", type="invalid_request_error", code="400"),
        "TOO_LONG",
    ),
    (
        400,
        error("litellm.ContentPolicyViolationError: ...", type=None, param=None, code="400"),
        "FILTERED",
    ),
    (
        429,
        error(
            "litellm.RateLimitError: OpenAIException - Rate limit reached",
            type=None,
            param=None,
            code="429",
        ),
        "RATE",
    ),
    (
        429,
        error(
            "No deployments available for selected model, Try again in 5 seconds.",
            type="None",
            code="429",
        ),
        "CAPACITY",
    ),
    (
        400,
        error(
            "Budget has been exceeded! Current cost: 10.51, Max budget: 10.0",
            type="budget_exceeded",
            code="400",
        ),
        "MONEY",
    ),
    (
        429,
        error(
            "LiteLLM User: engineer-1, exceeded budget for model=x",
            type="budget_exceeded",
            code="429",
        ),
        "MONEY",
    ),
    (
        400,
        error(
            "litellm.BadRequestError: OpenAIException - Budget has been exceeded!",
            type=None,
            code="400",
        ),
        "MONEY",
    ),
    (
        400,
        error(
            "ExceededBudget: End User=x over budget. Spend=0.0008, Budget=0.0001",
            type="auth_error",
            code=400,
        ),
        "MONEY",
    ),
    (
        400,
        error(
            "/chat/completions: Invalid model name passed in model=x. Call `/v1/models`",
            type="None",
            code="400",
        ),
        "AUTH",
    ),
    (
        401,
        error(
            "Authentication Error, Invalid proxy server token passed",
            type="auth_error",
            param="None",
            code="401",
        ),
        "AUTH",
    ),
    (
        500,
        error(
            "litellm.InternalServerError: AnthropicException - Overloaded", type=None, code="500"
        ),
        "CAPACITY",
    ),
    # Anthropic
    (
        529,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        "CAPACITY",
    ),
    (429, b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}', "RATE"),
    (
        429,
        error(
            "limit", type="rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}
        ),
        "MONEY",
    ),
    (
        400,
        error(
            "You have reached your specified API usage limits: spend limit reached",
            type="invalid_request_error",
        ),
        "MONEY",
    ),
    (
        400,
        error("Your credit balance is too low to access the API", type="invalid_request_error"),
        "MONEY",
    ),
    (
        400,
        error("prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"),
        "TOO_LONG",
    ),
    (
        400,
        error(
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, "
            "decrease input length or `max_tokens`",
            type="invalid_request_error",
        ),
        "TOO_LONG",
    ),
    (
        413,
        (
            b'{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the '
            b'maximum size"}}'
        ),
        "TOO_LONG",
    ),
    (
        400,
        error("Output blocked by content filtering policy", type="invalid_request_error"),
        "FILTERED",
    ),
    (
        400,
        error(
            "max_tokens: 9000 > 8192, the maximum number of output tokens",
            type="invalid_request_error",
        ),
        "BAD_REQUEST",
    ),
    (
        401,
        b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
        "AUTH",
    ),
    (
        500,
        b'{"type":"error","error":{"type":"api_error","message":"Internal server error"}}',
        "SERVER",
    ),
    # Ollama
    (
        404,
        error(
            'model "llama9" not found, try pulling it first',
            type="api_error",
            param=None,
            code=None,
        ),
        "AUTH",
    ),
    (
        500,
        error(
            "llama runner process has terminated: signal: killed",
            type="api_error",
            param=None,
            code=None,
        ),
        "SERVER",
    ),
    (
        503,
        b'{"error":"server busy, please try again. maximum pending requests exceeded"}',
        "CAPACITY",
    ),
    # Gemini and Vertex
    (429, b'[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]', "RATE"),
    (
        400,
        (
            b'[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.",'
            b'"status":"INVALID_ARGUMENT"}}]'
        ),
        "AUTH",
    ),
    (
        400,
        error(
            "The input token count (2845475) exceeds the maximum number of tokens allowed "
            "(1048576).",
            code=400,
        ),
        "TOO_LONG",
    ),
    (
        503,
        (
            b'[{"error":{"code":503,"message":"The model is overloaded. Please try again later.",'
            b'"status":"UNAVAILABLE"}}]'
        ),
        "CAPACITY",
    ),
    # DeepSeek, OpenRouter, Groq, DashScope, Moonshot, Mistral, FastAPI, proxies
    (402, error("Insufficient Balance", code="invalid_request_error"), "MONEY"),
    (
        400,
        error(
            "Model Not Exist",
            type="invalid_request_error",
            param=None,
            code="invalid_request_error",
        ),
        "AUTH",
    ),
    (402, error("busy", code="in_flight_budget_exhausted"), "CAPACITY"),
    (
        403,
        error("Your input was flagged", code=403, metadata={"reasons": ["violence"]}),
        "FILTERED",
    ),
    (403, error("Forbidden", code=403), "AUTH"),
    (498, error("capacity", code="capacity_exceeded"), "CAPACITY"),
    (
        413,
        error(
            "Request too large for model `x` on tokens per minute (TPM): Limit 8000",
            code="rate_limit_exceeded",
        ),
        "TOO_LONG",
    ),
    (
        400,
        error(
            "Access denied, please make sure your account is in good standing.",
            type="Arrearage",
            code="Arrearage",
        ),
        "MONEY",
    ),
    (
        400,
        error("Input data may contain inappropriate content.", code="data_inspection_failed"),
        "FILTERED",
    ),
    (
        429,
        error(
            "Your account is suspended, please check your plan", type="exceeded_current_quota_error"
        ),
        "MONEY",
    ),
    (429, error("The engine is currently overloaded", type="engine_overloaded_error"), "CAPACITY"),
    (
        429,
        (
            b'{"object":"error","message":"Service tier capacity exceeded",'
            b'"type":"service_tier_capacity_exceeded"}'
        ),
        "CAPACITY",
    ),
    (
        400,
        (
            b'{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,'
            b'"code":"1500"}'
        ),
        "AUTH",
    ),
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
    (410, error("The model `x` has been retired"), "AUTH"),
    (411, b"", "AUTH"),
    (421, b"", "AUTH"),
    (426, b"", "AUTH"),
    (499, b"", "SERVER"),
    (415, error("unsupported image type"), "BAD_REQUEST"),
    (431, b"", "BAD_REQUEST"),
    (418, b"", "BAD_REQUEST"),
    (600, b"", "SERVER"),
    # False successes
    (200, error("Provider returned error", code=502), "SERVER"),
    (200, error("Rate limited upstream", code=429), "RATE"),
    (200, error("no code"), "SERVER"),
    (200, error("no", code="unheard_of"), "SERVER"),
    (200, error("no", type="insufficient_quota", code="insufficient_quota"), "MONEY"),
    (200, error("no", code="in_flight_budget_exhausted"), "CAPACITY"),
    (200, b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}', "RATE"),
    (
        200,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        "CAPACITY",
    ),
    (
        200,
        b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
        "AUTH",
    ),
    (200, error("no", code="rate_limit_exceeded"), "RATE"),
    (200, error("no", code="slow_down"), "RAMP"),
    (200, error("no", code="Invalid_API_Key"), "AUTH"),
    (200, error("no", code="content_filter"), "FILTERED"),
    (200, error("no", code="context_length_exceeded"), "TOO_LONG"),
    (200, error("no", type="insufficient_quota", code=503), "MONEY"),
    (200, b'{"choices":[]}', "SERVER"),
    (200, b'{"choices":[{"text":"legacy"}]}', "SERVER"),
    (200, b"[]", "SERVER"),
    (200, completion(reason="error"), "SERVER"),
    (200, completion(reason="insufficient_system_resource"), "SERVER"),
    (200, b"", "SERVER"),
    (200, b"<html>captive portal</html>", "SERVER"),
    (200, b'data: {"choices":[]}', "SERVER"),
    (200, b'{"choices":[{"mess', "BAD_OUTPUT"),
    (200, b' \n{"choices":[{"mess', "BAD_OUTPUT"),
    (200, completion(content=None), "BAD_OUTPUT"),
    (200, completion(content=" \n"), "BAD_OUTPUT"),
    (200, completion(reason="tool_calls"), "BAD_OUTPUT"),
    (200, completion(content=None, reason="something_new"), "BAD_OUTPUT"),
    (200, completion(content=None, reason=["stop"]), "BAD_OUTPUT"),
    (200, completion(content=None, reason="length"), "TOO_LONG"),
    (200, completion(reason="max_tokens"), "TOO_LONG"),
    (200, completion(reason="content_filter"), "FILTERED"),
    (200, completion(message={"refusal": "I cannot help with that."}), "FILTERED"),
]


@pytest.mark.parametrize(("status", "body", "error_class"), PROVIDERS)
def test_each_reply_of_a_provider_has_its_class(status: int, body: bytes, error_class: str) -> None:
    """Each known reply of a provider has the class that the table gives it."""
    assert class_of(status, body) == error_class


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


def test_every_class_of_a_call_is_met_above() -> None:
    """The replies above cover every class, and the table of signals names only existing ones."""
    met = {error_class for _, _, error_class in PROVIDERS}
    handlers = {
        "HANDLER",
        "HANDLER_GAVE_UP",
        "DOCUMENT_REFUSED",
        "DOCUMENT_CHANGED",
        "DOCUMENT_UNREADABLE",
        "OUTPUT_UNWRITABLE",
        "OUTPUT_REFUSED",
    }
    local = {"NETWORK", "AMBIGUOUS", "REPLY_TOO_LARGE", "INPUT_CUT", *handlers}

    assert met | local == set(CLASSES)
    assert {row.error_class for row in TABLE} <= met


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
