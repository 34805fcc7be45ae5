"""The test of the LLM of `producer check`: the cheapest call there is, to the address and in the way that agents call.

Neither the key nor the address's query is ever shown, and what the server says is not trusted with a terminal.
"""

from datetime import timedelta

import orjson
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import RequestBuilder, StreamRequest
from pyreqwest.response import Response

from producer.shown import shown
from schemas import llm_address
from schemas.config import LLMConfig, authorization
from schemas.errors import ConfigError, UnreachableError, UnsafeStateError
from schemas.http_client import connected, why

TIMEOUT_S, CONNECT_TIMEOUT_S = 60.0, 10.0
_MOST_BYTES = 1 << 20
_MODEL_SHOWN, _WHY_SHOWN = 191, 500
_SUCCESS, _REDIRECTS = range(200, 300), range(300, 400)


async def ask(llm: LLMConfig, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return which model answers; `timeout_s` covers everything up to the last byte.

    Raises ConfigError for an address or a key that cannot be used, UnreachableError, UnsafeStateError for an answer that is a refusal.
    """
    url = llm_address.endpoint(llm.base_url or "")
    where = llm_address.shown(url)
    try:
        async with connected(url, timedelta(seconds=CONNECT_TIMEOUT_S)) as client:
            try:
                request = client.post(url)
            except ValueError:
                raise ConfigError("llm.base_url is not an address that can be called; check DOCLLM_LLM_BASE_URL") from None
            async with _call(request, llm, timeout_s) as response:
                status, body = response.status, await _read(response)
    except PyreqwestError as error:
        raise UnreachableError(f"{where} does not answer ({shown(why(error), _WHY_SHOWN)}); check DOCLLM_LLM_BASE_URL") from None
    return f"{where} answers as {_model(where, status, body)}"


def _call(request: RequestBuilder, llm: LLMConfig, timeout_s: float) -> StreamRequest:
    """Ask for one word."""
    body = {"model": llm.model or "", "messages": [{"role": "user", "content": "Say ok."}], "max_tokens": 16}
    request = request.timeout(timedelta(seconds=timeout_s)).header("Content-Type", "application/json")
    if (bearer := authorization(llm.api_key)) is not None:
        request = request.header("Authorization", bearer.reveal(), is_sensitive=True)
    return request.body_bytes(orjson.dumps(body)).build_streamed()


async def _read(response: Response) -> bytes:
    """Return the body as far as it can be a completion of a few words."""
    body = b""
    while len(body) < _MOST_BYTES and (piece := await response.body_reader.read(_MOST_BYTES)) is not None:
        body += bytes(piece)
    return body


def _model(where: str, status: int, body: bytes) -> str:
    if status in _REDIRECTS:
        raise UnsafeStateError(f"{where} answers {status}, a redirect, and those are not followed; check DOCLLM_LLM_BASE_URL")
    if status not in _SUCCESS:
        raise UnsafeStateError(f"{where} answers {status}; check DOCLLM_LLM_API_KEY and DOCLLM_LLM_MODEL")
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise UnreachableError(f"{where} answers with what is no completion; check DOCLLM_LLM_BASE_URL")
    return shown(str(answer.get("model", "an unnamed model")), _MODEL_SHOWN)
