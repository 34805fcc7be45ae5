"""One cheap call to an LLM, made the way agents call: same address, headers and forms."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from docllm.schemas.clients.structured_output import response_format
from docllm.schemas.settings.config import LLMConfig, Structured
from docllm.schemas.settings.headers import sent

_MAX_BYTES = 1 << 20  # no more of a body is read
_SUCCESS = range(200, 300)
# Some servers take a request for JSON only if the prompt has this word.
_PROMPT = 'Say ok, as JSON: {"ok": true}'
SCHEMA = {
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


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls an account; `timeout_s` limits each whole call. Raises PyreqwestError."""

    client: Client
    llm: LLMConfig
    timeout_s: float

    async def call(self, url: str, form: Structured, *, limited: bool = True) -> CheckAnswer:
        """Ask for one word; `limited` limits the answer, `form` asks for JSON."""
        async with self._request(url, form, _CHEAP if limited else {}) as response:
            return CheckAnswer(response.status, await _read(response), limited)

    def _request(self, url: str, form: Structured, limit: dict[str, int]) -> StreamRequest:
        """Without a configured model the provider chooses one, as it does when agents call."""
        body: dict[str, Any] = {
            **({"model": self.llm.model} if self.llm.model else {}),
            "messages": [{"role": "user", "content": _PROMPT}],
            **response_format(SCHEMA, form),
            **limit,
        }
        request = self.client.post(url).timeout(timedelta(seconds=self.timeout_s))
        request = request.header("Content-Type", "application/json")
        for name, value in sent(self.llm.api_key, self.llm.headers).items():
            request = request.header(name, value.reveal(), is_sensitive=True)
        # A broken body still leaves the status.
        return request.body_bytes(orjson.dumps(body)).streamed_read_buffer_limit(0).build_streamed()


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
