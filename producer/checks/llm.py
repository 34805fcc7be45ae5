"""The check of the LLM: the cheapest call, made the way agents call.

The call goes to the address that agents use. If the server refuses it, further calls find out which
setting would work. Neither the key nor the address's query is ever shown. The server's text is made
safe for a terminal.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import orjson
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from docllm.producer.text.printable import shown
from docllm.schemas.clients import llm_address
from docllm.schemas.clients.http import connected, why
from docllm.schemas.clients.structured_output import response_format
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.refusals.error_body import read_value
from docllm.schemas.refusals.signals import Refusal, classify, of_success
from docllm.schemas.settings.config import DEFAULT_ROUTE, LLMConfig, Structured
from docllm.schemas.settings.headers import hidden, sent
from docllm.schemas.settings.wordings import Wordings
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.fitness import NO_OBJECT, AnswerRead, read_answer, unread_reply
from docllm.schemas.task.result.json_answer import read_json
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
_NOT_PAID = 402
_NO_SUCH = 404
_UNPROCESSABLE = 422
_TOO_MANY = 429
# Texts of servers about an unsupported form of structured output; some send them with status 422 or
# 500.
_FORM = re.compile(rb"(?i)response.?format|json.?schema|json.?object|structured|grammar")


_WAIT = "wait, or raise the account's limit or quota"
_TRY_LATER = "the provider has a fault; try again later"
_ADVICE = {
    ErrorClass.MONEY: "pay, or raise the account's limit",
    ErrorClass.RATE: _WAIT,
    ErrorClass.RAMP: _WAIT,
    ErrorClass.CAPACITY: "the provider has no room at the moment; try again later",
    ErrorClass.SERVER: _TRY_LATER,
}
_MODEL_SHOWN = 191
_ANY_OBJECT = {"type": "object"}  # what a server may answer that does not get the schema
_MAX_BYTES = 1 << 20  # no more of a body is read
_SUCCESS = range(200, 300)
# Some servers take a request for JSON only if the prompt has this word.
_PROMPT = 'Say ok, as JSON: {"ok": true}'
_SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_CHEAP = {"max_tokens": 16}


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """A response's status and body; `limited` if the call limited the answer's length."""

    status: int
    body: bytes
    limited: bool = True

    @property
    def is_success(self) -> bool:
        """Whether the status is a success."""
        return self.status in _SUCCESS


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
            timed = replace(llm, timeout_s=timeout_s)
            answer, form = await _answered(client, timed, url)
            versioned = await _versioned(client, timed, url, answer)
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


async def _answered(client: Client, llm: LLMConfig, url: str) -> tuple[CheckAnswer, Structured]:
    """Return the answer to the first call that the server takes, and its form.

    Some models refuse a request that limits the answer, and agents do not limit it. After a 400 the
    call is therefore repeated without the limit, and then in the other forms of structured output.
    """
    configured = llm.structured
    answer = await _call(client, llm, url, configured)
    if answer.status == _BAD_REQUEST:
        answer = await _call(client, llm, url, configured, limited=False)
    if not _may_refuse_form(answer):
        return answer, configured
    for form in Structured:
        if form is not configured:
            answer_in_form = await _call(client, llm, url, form)
            if answer_in_form.is_success:
                return answer_in_form, form
    return answer, configured


async def _call(
    client: Client, llm: LLMConfig, url: str, form: Structured, *, limited: bool = True
) -> CheckAnswer:
    """Ask for one word as agents call; `limited` limits the answer, `form` asks for JSON.

    Without a configured model the provider chooses one, as it does when agents call. Raises
    PyreqwestError.
    """
    body: dict[str, Any] = {
        **({"model": llm.model} if llm.model else {}),
        "messages": [{"role": "user", "content": _PROMPT}],
        **response_format(_SCHEMA, form),
        **(_CHEAP if limited else {}),
    }
    request = client.post(url).timeout(timedelta(seconds=llm.timeout_s))
    request = request.header("Content-Type", "application/json")
    for name, value in sent(llm.api_key, llm.headers).items():
        request = request.header(name, value.reveal(), is_sensitive=True)
    # A broken body still leaves the status.
    stream = request.body_bytes(orjson.dumps(body)).streamed_read_buffer_limit(0)
    async with stream.build_streamed() as response:
        return CheckAnswer(response.status, await _read(response), limited)


async def _read(response: Response) -> bytes:
    """Return the body, up to the size of a completion of a few words.

    If the body of a refusal breaks off, the part that arrived is returned.
    """
    body = b""
    try:
        while len(body) < _MAX_BYTES:
            piece = await response.body_reader.read_chunk()
            if piece is None:
                break
            body += bytes(piece)
    except PyreqwestError:
        if response.status in _SUCCESS:
            raise
    return body


def _may_refuse_form(answer: CheckAnswer) -> bool:
    """Return whether the form of structured output may be what the server refuses."""
    if answer.status == _BAD_REQUEST:
        return True
    named = _FORM.search(answer.body) is not None
    return named and (answer.status == _UNPROCESSABLE or answer.status in _TROUBLES)


async def _versioned(client: Client, llm: LLMConfig, url: str, answer: CheckAnswer) -> str:
    """Return the address with `/v1` if the server answers there and not here; else empty."""
    if answer.status != _NO_SUCH or not llm_address.lacks_version(url):
        return ""
    base_url = llm_address.with_version(url)
    try:
        there, _form = await _answered(client, llm, llm_address.endpoint(base_url))
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
    hidden_body = masking(*_secrets(llm, url))(answer.body)
    if not answer.is_success:
        refusal, error = classify(status, hidden_body), ""
    elif (in_success := _refusal_in(hidden_body)) is not None:
        refusal, error = in_success, " with an error"
    else:
        return
    message = _message(answer.body, llm, url) or ("it gives no reason" if error else "")
    raise UnsafeStateError(
        f"{where} answers {status}{error}{': ' if message else ''}{message}; "
        f"{_taught(message, llm, route) or _advice(refusal, status, route, url)}"
    )


def _refusal_in(body: bytes) -> Refusal | None:
    """Return the refusal inside a successful answer, None if it contains no error.

    Some providers send such answers.
    """
    try:
        value = read_json(body).value
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or value.get("error"):
        return of_success(value) if isinstance(value, dict) else None
    is_refusal = not value.get("choices") and of_success(value).error_class != ErrorClass.SERVER
    return of_success(value) if is_refusal else None


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
        text = _text_of(value) or orjson.dumps(value).decode()
    except orjson.JSONDecodeError:
        text = body.decode("utf-8", "replace")
    except orjson.JSONEncodeError:  # nested deeper than any message
        text = ""
    for secret in sorted(_secrets(llm, url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return shown(one_line(text), _MESSAGE_SHOWN).rstrip(". ")


def _text_of(value: Any) -> str:
    return ": ".join(read_value(value).texts[:1]) if isinstance(value, dict | list) else ""


def _secrets(llm: LLMConfig, url: str) -> Iterator[str]:
    """Yield the key, the headers, and the values of the address's query as written and decoded."""
    yield from filter(None, hidden(llm.api_key, {}))
    yield from (text for text in hidden(None, llm.headers) if len(text) >= llm_address.MIN_SECRET)
    yield from llm_address.query_secrets(url)


def _advice(refusal: Refusal, status: int, route: str | None, url: str) -> str:
    """Return what to do about a refusal; its class is named if the status does not imply it."""
    error_class = refusal.error_class
    if error_class == classify(status, b"").error_class:
        return _advice_for_status(status, route, url)
    if error_class == ErrorClass.AUTH:
        advice = f"check {_setting(route, 'api_key')} and {_setting(route, 'model')}"
    else:
        usual = f"check {_setting(route, 'model')} and what the server takes in a request"
        advice = _ADVICE.get(error_class, usual)
    return f"agents take it for {error_class}: {advice}"


def _advice_for_status(status: int, route: str | None, url: str) -> str:
    if status in _NOT_ALLOWED:
        return f"check {_setting(route, 'api_key')}"
    if status == _NO_SUCH:
        lacking = "; does the address lack /v1?" if llm_address.lacks_version(url) else ""
        return f"check {_setting(route, 'base_url')} and {_setting(route, 'model')}{lacking}"
    if status == _NOT_PAID:
        return _ADVICE[ErrorClass.MONEY]
    if status == _TOO_MANY:
        return _WAIT
    if status in _TROUBLES:
        return _TRY_LATER
    return f"check {_setting(route, 'model')} and what the server takes in a request"


def model_and_remark(
    answer: CheckAnswer, form: Structured, where: str, address: str
) -> tuple[str, str]:
    """Return the model that answers, and what agents would note of its answer, else nothing.

    `form` is that of the schema in the call; `where` and `address` name the server and its setting.
    Raises UnreachableError for a body that is no completion, and UnsafeStateError if agents could
    not use such an answer.
    """
    try:
        completion = read_json(answer.body)
    except orjson.JSONDecodeError as error:
        why = unread_reply(answer.body, error.msg)
        if why is NO_OBJECT:
            raise _no_completion(where, address) from None
        raise UnreachableError(f"{where} answers {answer.status}, but {why.text}") from None
    match completion.value:
        case {"choices": [{"message": dict() as message} as choice, *_]} as reply:
            schema = _SCHEMA if form is Structured.JSON_SCHEMA else _ANY_OBJECT
            read = read_answer(choice.get("finish_reason"), message, schema)
            remark = _remark(answer, where, read, completion.mended)
            return _model(reply.get("model")), remark
    raise _no_completion(where, address)


def _no_completion(where: str, address: str) -> UnreachableError:
    return UnreachableError(f"{where} answers, but not with a completion; check {address}")


def _model(name: Any) -> str:
    return shown(name, _MODEL_SHOWN) if isinstance(name, str) else "an unnamed model"


def _remark(answer: CheckAnswer, where: str, read: AnswerRead, mended: tuple[str, ...]) -> str:
    unfit, _, oddities = read
    odd = [*(f"mended {name}" for name in mended), *oddities]
    names = shown("; ".join(odd))
    remarks = [f"agents take its answer although it is odd ({names})"] if odd else []
    if unfit is None:
        return "".join(remarks)
    if unfit.error_class == ErrorClass.TOO_LONG:
        if not answer.limited:
            remarks.append(f"its answer to a prompt of one line: {shown(unfit.text)}")
        return "; ".join(remarks)
    if unfit.is_correctable:
        remarks.append(
            f"{shown(unfit.text)}; tasks with a schema would be asked twice, and may fail"
        )
        return "; ".join(remarks)
    raise UnsafeStateError(
        f"{where} answers, but agents could not use its answer ({unfit.error_class}: "
        f"{shown(unfit.text)})"
    )
