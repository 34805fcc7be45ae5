"""`check` calls an LLM as agents do: same address, no redirect, one deadline.

It shows neither a secret nor a terminal code.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from docllm.producer.checks.llm import ask
from docllm.schemas.errors import DocllmError, UnreachableError, UnsafeStateError
from docllm.schemas.settings.config import LLMConfig, Secret, Structured
from tests.contract.providers.http_servers import Serve, response, server

WELL = b'{"model":"m","choices":[{"message":{"content":null},"finish_reason":"length"}]}'
KEY = Secret("sk-test-key-12345678")


def answering(answer: bytes, heads: list[bytes]) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()

    return serve


async def asked(answer: bytes, heads: list[bytes], query: str = "") -> str:
    async with server(answering(answer, heads)) as url:
        return await ask(LLMConfig(base_url=url + query, api_key=KEY, model="m"))


Answering = Callable[[str, dict[str, Any]], bytes]


def deciding(answer: Answering, calls: list[tuple[str, dict[str, Any]]]) -> Serve:
    """Return a server that answers by path and body, and notes both."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            body = orjson.loads(await reader.readexactly(length))
            path = head.split(b" ")[1].decode()
            calls.append((path, body))
            writer.write(answer(path, body))
            await writer.drain()

    return serve


def form_of(body: dict[str, Any]) -> str:
    return str(body.get("response_format", {}).get("type", "none"))


async def bodies_of(answers: list[bytes], model: str | None = "m") -> list[dict[str, Any]]:
    """Run a server that gives these answers in turn; return the request bodies it got."""
    sent: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            sent.append(orjson.loads(await reader.readexactly(length)))
            writer.write(answers[len(sent) - 1])
            await writer.drain()

    async with server(serve) as url:
        await ask(LLMConfig(base_url=url, api_key=KEY, model=model))
    return sent


def refused(answer: bytes, query: str = "", route: str | None = None, key: Secret = KEY) -> str:
    """Return the error text of a refusal."""

    async def run() -> None:
        async with server(answering(answer, [])) as url:
            await ask(LLMConfig(base_url=url + query, api_key=key, model="m"), route)

    with pytest.raises(UnsafeStateError) as failed:
        asyncio.run(run())
    return str(failed.value)


def test_a_redirect_is_a_failure_and_the_key_goes_nowhere_else() -> None:
    """A redirect may name any host, which would be sent the key."""
    elsewhere: list[bytes] = []

    async def run() -> None:
        async with server(answering(response("200 OK", b"{}"), elsewhere)) as other:
            await asked(response("302 Found", b"", f"Location: {other}"), [])

    with pytest.raises(UnsafeStateError, match="redirect"):
        asyncio.run(run())

    assert elsewhere == []


def test_the_address_is_the_one_that_agents_call_and_its_query_is_not_shown() -> None:
    """The path comes before the query, which may hold a key."""
    heads: list[bytes] = []

    refusal = asyncio.run(asked(response("200 OK", WELL), heads, "?key=hunter2"))

    assert heads[0].startswith(b"POST /v1/chat/completions?key=hunter2 ")
    assert refusal.endswith("/v1/chat/completions answers as m")


@pytest.mark.parametrize(
    "answer", [response("401 Unauthorized", b""), response("200 OK", b"no JSON"), b""]
)
def test_no_failure_shows_the_query(answer: bytes) -> None:
    """Refusals, invalid answers and cut connections name the address without its query."""
    with pytest.raises(DocllmError) as failed:
        asyncio.run(asked(answer, [], "?key=hunter2"))

    assert "/v1/chat/completions" in str(failed.value)
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            b'{"message":"No credit.","code":402}',
            "No credit; agents take it for MONEY: pay, or raise the account's limit",
        ),
        (b"7", '{"error":7}; check DOCLLM_LLM_MODEL and what the server takes in a request'),
    ],
)
def test_an_error_in_a_success_is_a_refusal(error: bytes, message: str) -> None:
    """Some providers answer this way, and agents treat it as the error that it contains."""
    assert refused(response("200 OK", b'{"error":%s}' % error)).endswith(
        f"answers 200 with an error: {message}"
    )


def test_a_success_that_only_refuses_is_a_refusal() -> None:
    """Some providers have neither a status nor an error, but a code and a text of their own."""
    body = b'{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}'

    assert "with an error: insufficient balance; agents take it for MONEY" in refused(
        response("200 OK", body)
    )


@pytest.mark.parametrize(
    ("status", "text", "advice"),
    [
        (403, "No credits left", "agents take it for MONEY: pay, or raise the account's limit"),
        (400, "API key is disabled", "for AUTH: check DOCLLM_LLM_API_KEY and DOCLLM_LLM_MODEL"),
        (503, "All GPUs are busy", "for CAPACITY: the provider has no room at the moment"),
        (400, "Slow down", "for RATE: wait, or raise the account's limit or quota"),
    ],
)
def test_a_refusal_is_read_as_agents_read_it(status: int, text: str, advice: str) -> None:
    """What agents would do of a refusal is said if its status does not imply it."""
    body = orjson.dumps({"outer": {"error_msg": text}})

    assert f"answers {status}: {text}; " in (refusal := refused(response(f"{status} No", body)))
    assert advice in refusal


@pytest.mark.parametrize(
    "answer", [response("401 No", b"{}", "Content-Encoding: gzip"), response("401 No", b"{}")[:-2]]
)
def test_a_refusal_outlives_its_broken_page(answer: bytes) -> None:
    """The status says what to do; "does not answer" would be wrong."""
    assert refused(answer).endswith("answers 401; check DOCLLM_LLM_API_KEY")


def test_an_invalid_proxy_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's address may hold a password."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "nonsense hunter2")

    with pytest.raises(UnreachableError) as failed:
        asyncio.run(ask(LLMConfig(base_url="http://h.invalid/v1", api_key=KEY)))

    assert "hunter2" not in str(failed.value)


def test_a_server_that_drips_is_left_at_the_deadline() -> None:
    """The timeout is for the whole call, not for each byte."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def run() -> None:
        async with server(drip) as url, asyncio.timeout(30):
            await ask(LLMConfig(base_url=url, api_key=KEY), timeout_s=0.2)

    with pytest.raises(UnreachableError, match="does not answer"):
        asyncio.run(run())


def test_the_models_name_cannot_act_on_a_terminal() -> None:
    """The server chooses that name: it must not forge a line or move the cursor."""
    refusal = asyncio.run(
        asked(response("200 OK", WELL.replace(b'"m"', b'"\\u001b[2J\\nok      topics: well"')), [])
    )

    assert refusal.isprintable()


def test_a_model_that_takes_no_limit_is_asked_again_without() -> None:
    """Agents send no limit, so such a model works for them.

    Any other model is asked once, for a few tokens.
    """
    no_limit = response(
        "400 Bad Request", b'{"error":{"message":"Unsupported parameter: max_tokens"}}'
    )
    well = response("200 OK", WELL)

    assert ["max_tokens" in body for body in asyncio.run(bodies_of([no_limit, well]))] == [
        True,
        False,
    ]
    assert ["max_tokens" in body for body in asyncio.run(bodies_of([well]))] == [True]


@pytest.mark.parametrize(
    ("known", "refusal", "tried"),
    [
        ("json_schema", "400 Bad Request", ["json_schema"]),
        ("json_object", "400 Bad Request", ["json_schema", "json_schema", "json_object"]),
        ("none", "400 Bad Request", ["json_schema", "json_schema", "json_object", "none"]),
        # As llama.cpp's Python server answers.
        ("json_object", "500 Oops", ["json_schema", "json_object"]),
        ("none", "422 No", ["json_schema", "json_object", "none"]),
    ],
)
async def test_the_form_of_structured_output_that_works_is_found(
    known: str, refusal: str, tried: list[str]
) -> None:
    """A server of another form would refuse each task with a schema.

    One that takes the configured form is asked once. Each call asks for a few tokens, except the
    one that finds out whether the limit was refused.
    """
    calls: list[tuple[str, dict[str, Any]]] = []
    wrong = b'{"error":{"message":"1 validation error: response_format.type"}}'

    def answer(_path: str, body: dict[str, Any]) -> bytes:
        taken = form_of(body) in {known, "none"}
        return response("200 OK", WELL) if taken else response(refusal, wrong)

    async with server(deciding(answer, calls)) as url:
        text = await ask(LLMConfig(base_url=url, api_key=KEY, model="m"))

    assert [form_of(body) for _, body in calls] == tried
    assert [body for _, body in calls if "max_tokens" not in body] == (
        [calls[1][1]] if refusal.startswith("400") and known != "json_schema" else []
    )
    advice = f'; WARNING: it refuses structured output as json_schema; write structured = "{known}"'
    assert (f"{advice} under [llm]" in text) == (known != "json_schema")
    assert " answers as m" in text


async def test_the_configured_form_is_what_agents_send() -> None:
    """The schema stands where llama.cpp's Python server takes it; a route names its section."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def answer(_path: str, body: dict[str, Any]) -> bytes:
        return response("200 OK" if form_of(body) == "none" else "400 No", WELL)

    llm = LLMConfig(model="m", structured=Structured.JSON_OBJECT)
    async with server(deciding(answer, calls)) as url:
        text = await ask(replace(llm, base_url=url), "fast")

    schema = calls[0][1]["response_format"]["schema"]
    assert schema["properties"] == {"ok": {"type": "boolean"}}
    assert [form_of(body) for _, body in calls] == ["json_object"] * 2 + ["json_schema", "none"]
    assert 'as json_object; write structured = "none" under [routes.fast]' in text


async def test_headers_of_the_account_are_sent_and_masked() -> None:
    """`check` calls as agents do, and a server that repeats a header shows it to nobody."""
    heads: list[bytes] = []
    headers = {"api-key": Secret("azure-secret-1"), "Authorization": Secret("Basic dXNlcg==")}
    echo = response("401 No", b'{"error":{"message":"no azure-secret-1, no dXNlcg=="}}')

    async with server(answering(echo, heads)) as url:
        with pytest.raises(UnsafeStateError) as refused:
            await ask(LLMConfig(base_url=url, model="m", headers=headers))

    assert b"api-key: azure-secret-1" in heads[0].lower()
    assert b"authorization: basic dxnlcg==" in heads[0].lower()
    assert "answers 401: no ***, no ***; check" in str(refused.value)


@pytest.mark.parametrize("query", ["", "?key=hunter2"])
async def test_an_address_without_its_version_is_tried_with_it(query: str) -> None:
    """Most servers answer below /v1 alone, and their 404 does not say so."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def answer(path: str, _body: dict[str, Any]) -> bytes:
        there = path.startswith("/v1/chat/completions")
        return response("200 OK", WELL) if there else response("404 Not Found", b"{}")

    async with server(deciding(answer, calls)) as url:
        base_url = url.removesuffix("/v1")
        with pytest.raises(UnsafeStateError) as refused:
            await ask(LLMConfig(base_url=base_url + "/" + query, api_key=KEY, model="m"))

    end = f"{base_url}/v1 works; set DOCLLM_LLM_BASE_URL to {base_url}/v1"
    assert str(refused.value).endswith(end + (" with the same query" if query else ""))
    assert [path for path, _ in calls] == [
        f"/chat/completions{query}",
        f"/v1/chat/completions{query}",
    ]
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("status", [401, 404, 422, 429, 500])
def test_only_a_bad_request_is_made_again(status: int) -> None:
    """Another refusal has another cause, and a second call might cost money."""
    with pytest.raises(UnsafeStateError, match=f"answers {status}"):
        asyncio.run(bodies_of([response(f"{status} No", b"{}")]))


def test_no_model_is_named_without_a_configured_one() -> None:
    """As for agents, the provider chooses the model."""
    (body,) = asyncio.run(bodies_of([response("200 OK", WELL)], model=None))

    assert "model" not in body


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "DOCLLM_LLM_MODEL and what the server takes in a request"),
        (401, "check DOCLLM_LLM_API_KEY"),
        (402, "pay, or raise the account's limit"),
        (403, "check DOCLLM_LLM_API_KEY"),
        (404, "check DOCLLM_LLM_BASE_URL and DOCLLM_LLM_MODEL"),
        (429, "limit or quota"),
        (503, "try again later"),
    ],
)
def test_the_advice_fits_the_status(status: int, advice: str) -> None:
    """A person learns what can be wrong, and reads the provider's message."""
    refusal = refused(
        response(f"{status} No", b'{"error":{"message":"The words of the provider.","code":"x"}}')
    )

    assert f"answers {status}: The words of the provider; " in refusal
    assert refusal.endswith(advice)


def test_a_404_asks_whether_the_address_lacks_its_version() -> None:
    """Some servers have their API only below /v1, and answer 404 without an explanation."""

    async def run(path: str) -> None:
        async with server(
            answering(response("404 Not Found", b'{"detail":"Not Found"}'), [])
        ) as url:
            await ask(LLMConfig(base_url=url.removesuffix("/v1") + path, api_key=KEY, model="m"))

    advice = "check DOCLLM_LLM_BASE_URL and DOCLLM_LLM_MODEL"
    for path, end in (("", "; does the address lack /v1?"), ("/v1", ""), ("/openai/v1/", "")):
        with pytest.raises(UnsafeStateError) as failed:
            asyncio.run(run(path))
        assert str(failed.value).endswith(advice + end)


def test_a_routes_refusal_names_its_own_settings() -> None:
    """A route's settings are not corrected in the variables of the default route."""
    assert refused(response("401 No", b""), route="fast").endswith(
        "answers 401; check routes.fast.api_key"
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"why"}}',
        b'{"error":"why"}',
        b'{"message":"why"}',
        b'{"detail":[{"msg":"why"}]}',
        b'[{"error":{"message":"why"}}]',
        b"why",
    ],
)
def test_the_message_is_found_where_servers_put_it(body: bytes) -> None:
    """The shapes of error bodies differ; the message that a person wants to read does not."""
    assert "answers 422: why; check" in refused(response("422 No", body))


@pytest.mark.parametrize(
    "secret", ["hunter2", "hunter%32", "sk-test-key-12345678", "sk-other-key-1234"]
)
def test_a_refusal_that_repeats_a_secret_is_masked(secret: str) -> None:
    """The key in any form, the secrets in the address, and texts that look like a key."""
    body = b'{"error":{"message":"no entry with %s, %s"}}' % (secret.encode(), b"x" * 500)

    refusal = refused(response("403 No", body), "?key=hunter%32")

    assert secret not in refusal
    assert "no entry with ***, xx" in refusal
    assert "a/b/c" not in refused(
        response("403 No", b'{"key":"a\\/b\\/c"}'), key=Secret("a/b/c")
    ).replace("\\", "")
    assert "odd" not in refused(response("403 No", b"no entry with odd key"), key=Secret("odd"))


def test_a_refusal_is_one_line_that_is_safe_to_show() -> None:
    """A hostile or broken server neither moves a cursor nor fills the screen.

    It does not end the command either.
    """
    refusal = refused(
        response(
            "418 No", b'{"message":"\\u001b[2J\\nok      topics: well\\u202e' + b"x" * 5000 + b'"}'
        )
    )
    deep = refused(response("418 No", b'{"error":' * 500 + b"1" + b"}" * 500))

    assert refusal.isprintable()
    assert len(refusal.partition("answers 418: ")[2].rpartition("; check")[0]) == 200
    assert deep.isprintable()


async def test_a_key_that_a_proxy_can_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an http:// address, the proxy of HTTP_PROXY gets the whole request with the key."""
    heads: list[bytes] = []
    for name in ("http_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with server(answering(response("200 OK", WELL), heads)) as url:
        monkeypatch.setenv("HTTP_PROXY", url.removesuffix("/v1"))
        refusal = await ask(LLMConfig(base_url="http://llm.test/v1", api_key=KEY, model="m"))
        open_to_all = await ask(LLMConfig(base_url="http://llm.test/v1", api_key=None, model="m"))

    assert KEY.reveal().encode() in heads[0]
    assert (
        "; WARNING: the API key is sent to llm.test unencrypted and through the proxy of HTTP_PROXY"
        in refusal
    )
    assert "WARNING" not in open_to_all


def test_a_taught_refusal_is_named_by_its_class() -> None:
    """`check` says what agents take a refusal for if the route's wordings name it."""

    async def run() -> None:
        answer = response("400 Bad Request", b'{"error": "max input reached"}')
        async with server(answering(answer, [])) as url:
            taught: dict[str, tuple[str, ...]] = {"TOO_LONG": ("Max input",)}
            await ask(LLMConfig(base_url=url, api_key=KEY, wordings=taught), "large")

    with pytest.raises(UnsafeStateError, match=r"for TOO_LONG, by routes\.large\.wordings"):
        asyncio.run(run())
