"""The LLM test of `producer check`: the cheapest call, made the way agents call.

It goes to the address that agents use. Neither the key nor the address's query is ever shown. The
server's text is made safe for a terminal.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_plus, urlsplit
from urllib.request import getproxies_environment

import orjson
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import RequestBuilder, StreamRequest
from pyreqwest.response import Response

from producer.text.printable import shown
from schemas.clients import llm_address
from schemas.clients.http import connected, why
from schemas.errors import UnreachableError, UnsafeStateError
from schemas.settings.config import LLMConfig
from schemas.settings.headers import hidden, sent
from schemas.task.wording import one_line

TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 20  # of a body that are read
# Characters shown of a model's name, of an error of the client, of the provider's message.
_MODEL_SHOWN = 191
_WHY_SHOWN = 500
_MESSAGE_SHOWN = 200
# HTTP statuses.
_SUCCESS = range(200, 300)
_REDIRECTS = range(300, 400)
_TROUBLES = range(500, 600)
_BAD_REQUEST = 400
_NOT_ALLOWED = (401, 403)
_NO_SUCH = 404
_TOO_MANY = 429
_CHEAP = {"max_tokens": 16}
# The names under which providers put the message of an error, and how deep they nest it.
_MESSAGES = ("error", "message", "detail", "msg")
_MESSAGE_DEPTH = 5
_VERSION = re.compile("/v[0-9]")  # a version in the path of an address
_LEAST_SECRET = 4  # characters; a shorter part of a query is a version or a switch


async def ask(llm: LLMConfig, route: str | None = None, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return which model answers.

    `route` is the route whose settings the advice names, None for `[llm]`. `timeout_s` limits each
    whole call.

    Some models refuse a request that limits the answer, and agents do not limit it. After a 400 the
    call is therefore repeated without the limit.

    Raises ConfigError for an unusable address or key, UnreachableError, and UnsafeStateError if the
    answer is a refusal.
    """
    url = llm_address.endpoint(llm.base_url or "")
    where, address = llm_address.shown(url), _setting(route, "base_url")
    try:
        async with connected(url, timedelta(seconds=CONNECT_TIMEOUT_S)) as client:
            status, body = await _call_once(client, url, llm, timeout_s, _CHEAP)
            if status == _BAD_REQUEST:
                status, body = await _call_once(client, url, llm, timeout_s, {})
    except PyreqwestError as error:
        raise UnreachableError(
            f"{where} does not answer ({shown(why(error), _WHY_SHOWN)}); check {address}"
        ) from None
    if status in _REDIRECTS:
        raise UnsafeStateError(
            f"{where} answers {status}, a redirect, which docllm does not follow; check {address}"
        )
    if status not in _SUCCESS:
        message = _message(body, llm, url)
        raise UnsafeStateError(
            f"{where} answers {status}{': ' if message else ''}{message}; "
            f"{_advice(status, route, url)}"
        )
    if message := _message_of_failure(body, llm, url):
        raise UnsafeStateError(
            f"{where} answers {status} with an error: {message}; {_advice(status, route, url)}"
        )
    success = f"{where} answers as {_model(where, body, address)}"
    return f"{success}; WARNING: {warning}" if (warning := _in_clear(llm, url)) else success


def _in_clear(llm: LLMConfig, url: str) -> str:
    """Return a warning if the account's secrets go to its address unencrypted, else nothing."""
    if not llm.has_secrets:
        return ""
    proxies = getproxies_environment()
    return llm_address.in_clear(url, proxies, has_key=llm.api_key is not None)


def _setting(route: str | None, key: str) -> str:
    """Return the name of the setting to check."""
    return f"DOCLLM_LLM_{key.upper()}" if route is None else f"routes.{route}.{key}"


async def _call_once(
    client: Client, url: str, llm: LLMConfig, timeout_s: float, limit: dict[str, int]
) -> tuple[int, bytes]:
    """Return the response's status and body."""
    async with _request(client.post(url), llm, timeout_s, limit) as response:
        return response.status, await _read(response)


def _request(
    request: RequestBuilder, llm: LLMConfig, timeout_s: float, limit: dict[str, int]
) -> StreamRequest:
    """Ask for one word.

    Without a configured model the provider chooses one, as it does when agents call.
    """
    chosen = {"model": llm.model} if llm.model else {}
    body = {**chosen, "messages": [{"role": "user", "content": "Say ok."}], **limit}
    request = request.timeout(timedelta(seconds=timeout_s)).header(
        "Content-Type", "application/json"
    )
    for name, value in sent(llm.api_key, llm.headers).items():
        request = request.header(name, value.reveal(), is_sensitive=True)
    # A broken body still leaves the status.
    return request.body_bytes(orjson.dumps(body)).streamed_read_buffer_limit(0).build_streamed()


async def _read(response: Response) -> bytes:
    """Return the body, up to the size of a completion of a few words.

    If the body of a refusal breaks off, the part that arrived is returned.
    """
    body = b""
    try:
        while len(body) < _MOST_BYTES:
            piece = await response.body_reader.read_chunk()
            if piece is None:
                break
            body += bytes(piece)
    except PyreqwestError:
        if response.status in _SUCCESS:
            raise
    return body


def _message(body: bytes, llm: LLMConfig, url: str) -> str:
    """Return the provider's message about its refusal, empty if there is none.

    Secrets that the message repeats are masked.
    """
    try:
        value = orjson.loads(body)
        # Encoded anew, so that no escape hides a secret.
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
        failure = orjson.loads(body)["error"]
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
    if llm.api_key is not None and (key := llm.api_key.reveal().strip()):
        yield key
    yield from (text for text in hidden(None, llm.headers) if len(text) >= _LEAST_SECRET)
    for pair in urlsplit(url).query.split("&"):
        value = pair.partition("=")[2] or pair
        yield from (text for text in {value, unquote_plus(value)} if len(text) >= _LEAST_SECRET)


def _advice(status: int, route: str | None, url: str) -> str:
    if status in _NOT_ALLOWED:
        return f"check {_setting(route, 'api_key')}"
    if status == _NO_SUCH:
        lacking = "" if _VERSION.search(urlsplit(url).path) else "; does the address lack /v1?"
        return f"check {_setting(route, 'base_url')} and {_setting(route, 'model')}{lacking}"
    if status == _TOO_MANY:
        return "wait, or raise the account's limit or quota"
    if status in _TROUBLES:
        return "the provider has a fault; try again later"
    return f"check {_setting(route, 'model')} and what the server takes in a request"


def _model(where: str, body: bytes, address: str) -> str:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    match answer:
        case {"choices": [{"message": {}}, *_]}:
            model = answer.get("model")
            return shown(model, _MODEL_SHOWN) if isinstance(model, str) else "an unnamed model"
    raise UnreachableError(f"{where} answers, but not with a completion; check {address}")
