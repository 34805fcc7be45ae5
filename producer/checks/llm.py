"""The check of the LLM: the cheapest call, made the way agents call.

The call goes to the address that agents use. If the server refuses it, further calls find out which
setting would work. Neither the key nor the address's query is ever shown. The server's text is made
safe for a terminal.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
from pyreqwest.exceptions import PyreqwestError

from docllm.producer.checks.llm_answer import model_and_remark
from docllm.producer.checks.llm_call import Caller, CheckAnswer
from docllm.producer.text.printable import shown
from docllm.schemas.clients import llm_address
from docllm.schemas.clients.http import connected, why
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.settings.config import DEFAULT_ROUTE, LLMConfig, Structured
from docllm.schemas.settings.headers import hidden
from docllm.schemas.settings.wordings import Wordings
from docllm.schemas.task.result.mending import read_json
from docllm.schemas.text.wording import masking, one_line

TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
# Characters shown of an error of the client, and of the provider's message.
_WHY_SHOWN = 500
_MESSAGE_SHOWN = 200
# HTTP statuses.
_REDIRECTS = range(300, 400)
_TROUBLES = range(500, 600)
_BAD_REQUEST = 400
_NOT_ALLOWED = (401, 403)
_NO_SUCH = 404
_UNPROCESSABLE = 422
_TOO_MANY = 429
# Texts of servers about an unsupported form of structured output; some send them with status 422 or
# 500.
_FORM = re.compile(rb"(?i)response.?format|json.?schema|json.?object|structured|grammar")
# The names under which providers put the message of an error, and how deep they nest it.
_MESSAGES = ("error", "message", "detail", "msg")
_MESSAGE_DEPTH = 5


async def ask(llm: LLMConfig, route: str | None = None, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return which model answers, and warnings.

    `route` is the route whose settings the advice names, None for `[llm]`. `timeout_s` limits each
    whole call.

    Raises ConfigError for an unusable address or key, UnreachableError, and UnsafeStateError if the
    answer is a refusal.
    """
    url = llm_address.endpoint(llm.base_url or "")
    where, address = llm_address.shown(url), _setting(route, "base_url")
    try:
        async with connected(url, timedelta(seconds=CONNECT_TIMEOUT_S)) as client:
            caller = Caller(client, llm, timeout_s)
            answer, form = await _answered(caller, url)
            versioned = await _versioned(caller, url, answer)
    except PyreqwestError as error:
        raise UnreachableError(
            f"{where} does not answer ({shown(why(error), _WHY_SHOWN)}); check {address}"
        ) from None
    _require_answer(answer, llm, route, url, versioned)
    hidden_body = masking(*_secrets(llm, url))(answer.body)
    model, remark = model_and_remark(replace(answer, body=hidden_body), form, where, address)
    success = f"{where} answers as {model}"
    warnings = filter(None, (remark, _in_clear(llm, url), _other_form(llm, route, form)))
    return "; WARNING: ".join((success, *warnings))


async def _answered(caller: Caller, url: str) -> tuple[CheckAnswer, Structured]:
    """Return the answer to the first call that the server takes, and its form.

    Some models refuse a request that limits the answer, and agents do not limit it. After a 400 the
    call is therefore repeated without the limit, and then in the other forms of structured output.
    """
    configured = caller.llm.structured
    answer = await caller.call(url, configured)
    if answer.status == _BAD_REQUEST:
        answer = await caller.call(url, configured, limited=False)
    if not _may_refuse_form(answer):
        return answer, configured
    for form in Structured:
        if form is not configured:
            answer_in_form = await caller.call(url, form)
            if answer_in_form.is_success:
                return answer_in_form, form
    return answer, configured


def _may_refuse_form(answer: CheckAnswer) -> bool:
    """Return whether the form of structured output may be what the server refuses."""
    if answer.status == _BAD_REQUEST:
        return True
    named = _FORM.search(answer.body) is not None
    return named and (answer.status == _UNPROCESSABLE or answer.status in _TROUBLES)


async def _versioned(caller: Caller, url: str, answer: CheckAnswer) -> str:
    """Return the address with `/v1` if the server answers there and not here; else empty."""
    if answer.status != _NO_SUCH or not llm_address.lacks_version(url):
        return ""
    base_url = llm_address.with_version(url)
    try:
        there, _form = await _answered(caller, llm_address.endpoint(base_url))
    except PyreqwestError:  # the first answer says more
        return ""
    return llm_address.shown(base_url) if there.is_success else ""


def _require_answer(
    answer: CheckAnswer, llm: LLMConfig, route: str | None, url: str, versioned: str
) -> None:
    """Raise UnsafeStateError, with advice, if the answer is a refusal."""
    where, status = llm_address.shown(url), answer.status
    address = _setting(route, "base_url")
    if status in _REDIRECTS:
        raise UnsafeStateError(
            f"{where} answers {status}, a redirect, which docllm does not follow; check {address}"
        )
    if versioned:
        raise UnsafeStateError(
            f"{where} answers {status}, but {versioned} works; set {address} to {versioned}"
            f"{' with the same query' if '?' in url else ''}"
        )
    if not answer.is_success:
        message = _message(answer.body, llm, url)
        raise UnsafeStateError(
            f"{where} answers {status}{': ' if message else ''}{message}; "
            f"{_taught(message, llm, route) or _advice(status, route, url)}"
        )
    if message := _message_of_failure(answer.body, llm, url):
        raise UnsafeStateError(
            f"{where} answers {status} with an error: {message}; "
            f"{_taught(message, llm, route) or _advice(status, route, url)}"
        )


def _taught(message: str, llm: LLMConfig, route: str | None) -> str:
    """Return what agents take a refusal for by the route's own wordings, else nothing."""
    error_class = Wordings(llm.wordings).class_of(message)
    setting = f"routes.{route or DEFAULT_ROUTE}.wordings"
    return "" if error_class is None else f"agents take it for {error_class}, by {setting}"


def _in_clear(llm: LLMConfig, url: str) -> str:
    """Return a warning if the account's secrets go to its address unencrypted, else nothing."""
    if not llm.has_secrets:
        return ""
    proxies = llm_address.environment_proxies()
    return llm_address.in_clear(url, proxies, has_key=llm.api_key is not None)


def _other_form(llm: LLMConfig, route: str | None, form: Structured) -> str:
    """Return a warning if the server takes a schema in another form than the configured one."""
    if form is llm.structured:
        return ""
    section = "llm" if route is None else f"routes.{route}"
    return (
        f'it refuses structured output as {llm.structured}; write structured = "{form}" '
        f"under [{section}], because tasks with a schema would fail"
    )


def _setting(route: str | None, key: str) -> str:
    """Return the name of the setting to check."""
    return f"DOCLLM_LLM_{key.upper()}" if route is None else f"routes.{route}.{key}"


def _message(body: bytes, llm: LLMConfig, url: str) -> str:
    """Return the provider's message about its refusal, empty if there is none.

    Secrets that the message repeats are masked.
    """
    try:
        value = orjson.loads(body)
        # Re-encode the body, so that no escape hides a secret.
        text = _first_message(value) or orjson.dumps(value).decode()
    except orjson.JSONDecodeError:
        text = body.decode("utf-8", "replace")
    except orjson.JSONEncodeError:  # nested deeper than any message
        text = ""
    for secret in sorted(_secrets(llm, url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return shown(one_line(text), _MESSAGE_SHOWN).rstrip(". ")


def _message_of_failure(body: bytes, llm: LLMConfig, url: str) -> str:
    """Return the error message inside a successful answer, empty if it contains no error.

    Some providers send such answers.
    """
    try:
        failure = read_json(body).value["error"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return ""
    return (_message(body, llm, url) or "it gives no reason") if failure else ""


def _first_message(value: Any, depth: int = _MESSAGE_DEPTH) -> str:
    """Return the first text of an error body under a name that providers use for messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        value = {"error": value[0]} if value else None
    if not isinstance(value, dict) or not depth:
        return ""
    messages = (_first_message(value.get(name), depth - 1) for name in _MESSAGES)
    return next(filter(None, messages), "")


def _secrets(llm: LLMConfig, url: str) -> Iterator[str]:
    """Yield the key, the headers, and the values of the address's query as written and decoded."""
    yield from filter(None, hidden(llm.api_key, {}))
    yield from (text for text in hidden(None, llm.headers) if len(text) >= llm_address.MIN_SECRET)
    yield from llm_address.query_secrets(url)


def _advice(status: int, route: str | None, url: str) -> str:
    if status in _NOT_ALLOWED:
        return f"check {_setting(route, 'api_key')}"
    if status == _NO_SUCH:
        lacking = "; does the address lack /v1?" if llm_address.lacks_version(url) else ""
        return f"check {_setting(route, 'base_url')} and {_setting(route, 'model')}{lacking}"
    if status == _TOO_MANY:
        return "wait, or raise the account's limit or quota"
    if status in _TROUBLES:
        return "the provider has a fault; try again later"
    return f"check {_setting(route, 'model')} and what the server takes in a request"
