"""The port `LLM` on pyreqwest: one POST per call, no retries, no redirects.

Every failure is a value. This module may not judge a status or interpret a body, but it masks its
own key, headers and query in every body that can be no completion. aiohttp could be used instead;
`bench/llm_clients.py` compares the two.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pyreqwest.exceptions import PoolTimeoutError, PyreqwestError
from pyreqwest.http import HeaderMap
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from docllm.agent.ports import Call, CallFailed, Reply
from docllm.agent.ports.llm import MAX_REPLY_BYTES
from docllm.schemas.clients.http import causes, connected, wants_login, why
from docllm.schemas.clients.llm_address import endpoint, lacks_version, query_secrets
from docllm.schemas.settings.config import Secret
from docllm.schemas.settings.headers import hidden, sent
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record import header_names
from docllm.schemas.text.untrusted import describe_error, is_panic
from docllm.schemas.text.wording import TEXT_CHARS, masking

_ERROR_PAGE_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_SUCCESS = range(200, 300)
_LEAST_S = 0.001

# Only this message proves that there was no connection: ConnectError and ConnectTimeoutError are
# also raised after the body was sent.
_NEVER_CONNECTED = "client error (Connect)"


class ChatClient:
    """The client of one provider account.

    A cancelled call returns at once, but its connection lives on until the call's own timeout. So
    connections are not limited here: the agent's slots limit the attempts, and the limits of the
    account limit the calls of a handler that makes several at once. Raises ConfigError for a
    bad address or key.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: Secret | None,
        headers: Mapping[str, Secret] | None = None,
        connect_timeout_s: float = 10.0,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        self._url = endpoint(base_url)
        self._unversioned = lacks_version(self._url)
        self._headers = tuple(sent(api_key, headers or {}).items())
        self._masked = masking(*hidden(api_key, headers or {}), *query_secrets(self._url))
        self._max_reply_bytes = max_reply_bytes
        self._client = connected(self._url, timedelta(seconds=connect_timeout_s))

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Make the call; `call.timeout_s` covers the time from the connection to the last byte."""
        try:
            async with self._request(call) as response:
                if response.status not in _SUCCESS:
                    page, cut = await _error_page(response)
                    page = self._masked(page)
                    headers = _headers(response)
                    return Reply(response.status, headers, page, cut, self._unversioned)
                body = await self._read(response)
                if body is None:
                    return _too_large(self._max_reply_bytes)
                return self._reply(response, body)
        except PyreqwestError as error:
            return self._failure(error)
        except BaseException as error:
            if not is_panic(error):
                raise
            return CallFailed(
                ErrorClass.AMBIGUOUS,
                self._masked_text(f"the HTTP client fails: {describe_error(error)}"),
            )

    async def close(self) -> None:
        """Close the connections; calls that still run end as AMBIGUOUS."""
        await self._client.close()

    def _request(self, call: Call) -> StreamRequest:
        seconds = max(_LEAST_S, call.timeout_s)
        builder = self._client.post(self._url).timeout(timedelta(seconds=seconds))
        builder = builder.header("Content-Type", "application/json")
        builder = builder.header("X-Client-Request-Id", call.request_id)
        if call.traceparent:
            builder = builder.header(header_names.TRACEPARENT, call.traceparent)
        for name, value in self._headers:
            builder = builder.header(name, value.reveal(), is_sensitive=True)
        # The body is not prefetched: if reading it fails, the status and headers must not be lost.
        return builder.body_bytes(call.body).streamed_read_buffer_limit(0).build_streamed()

    async def _read(self, response: Response) -> bytes | None:
        """Return the decompressed body of a success; None when it is too large."""
        pieces, left_bytes = list[bytes](), self._max_reply_bytes
        while (piece := await response.body_reader.read(_CHUNK_BYTES)) is not None:
            pieces.append(bytes(piece))
            left_bytes -= len(piece)
            if left_bytes < 0:
                return None
            if len(piece) < _CHUNK_BYTES:  # only the last one is short
                break
        return b"".join(pieces)

    def _reply(self, response: Response, body: bytes) -> Reply:
        """Return the reply.

        A completion stays byte for byte as it is. In any other body a provider may repeat the key
        or a header that it refuses, so these are masked.
        """
        completion = len(body) > _ERROR_PAGE_BYTES or b'"choices"' in body
        shown = body if completion else self._masked(body)
        return Reply(response.status, _headers(response), shown)

    def _failure(self, error: PyreqwestError) -> CallFailed:
        unsent = isinstance(error, PoolTimeoutError) or _NEVER_CONNECTED in causes(error)
        text = self._masked_text(why(error))[:TEXT_CHARS]
        if wants_login(error):
            return CallFailed(ErrorClass.AUTH, text)
        return CallFailed(ErrorClass.NETWORK if unsent else ErrorClass.AMBIGUOUS, text)

    def _masked_text(self, text: str) -> str:
        return self._masked(text.encode("utf-8", "replace")).decode()


async def _error_page(response: Response) -> tuple[bytes, bool]:
    """Return the first part of an error body, and whether the connection broke before its end.

    The status decides all the same.
    """
    page, cut = bytearray(), False
    try:
        while len(page) < _ERROR_PAGE_BYTES:
            piece = await response.body_reader.read_chunk()
            if piece is None:
                break
            page += piece
    except PyreqwestError:
        cut = True
    return bytes(page[:_ERROR_PAGE_BYTES]), cut


def _headers(response: Response) -> dict[str, str]:
    """Return the headers by lower-case name.

    A value that is no text is left out, because a paid reply must not be lost for it.
    """
    headers = response.headers
    try:
        has_name_twice = headers.keys_len() < len(headers)  # then the last value counts
        read: Any = headers.items() if has_name_twice else headers.dict_multi_value()
        return dict(read)
    except ValueError:
        return dict(_readable_headers(headers))


def _readable_headers(headers: HeaderMap) -> Iterator[tuple[str, str]]:
    for name in headers:
        try:
            yield name, headers[name]
        except ValueError:
            continue


def _too_large(limit: int) -> CallFailed:
    return CallFailed(ErrorClass.REPLY_TOO_LARGE, f"the reply is larger than {limit} bytes")
