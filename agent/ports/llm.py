"""The port of a provider."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from docllm.schemas.settings.config import Structured
from docllm.schemas.settings.wordings import NO_WORDINGS, Wordings
from docllm.schemas.task.failures import ErrorClass

MAX_REPLY_BYTES = 16 << 20


@dataclass(slots=True)
class Call:
    """One chat completion: the JSON body, the request id to send, and the total time limit.

    `traceparent` names the call's span, for the provider; empty for none.
    """

    body: bytes
    request_id: str
    timeout_s: float
    traceparent: str = ""


@dataclass(slots=True, unsafe_hash=True)
class Reply:
    """The provider's answer, whatever its status; it is never changed.

    Header names are lower case. `cut` means that an error's body did not arrive completely, and
    `unversioned` that the refusing address names no version, such as `/v1`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False
    unversioned: bool = False


@dataclass(frozen=True, slots=True)
class CallFailed:
    """No complete answer arrived.

    `error_class` is one of: NETWORK (nothing was sent), AUTH (nothing was sent, as a proxy asks for
    a password), AMBIGUOUS (the call may have been billed), or REPLY_TOO_LARGE.
    """

    error_class: ErrorClass
    text: str


class LLM(Protocol):
    """A client of one provider account."""

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Make the call. Every failure is a return value. A cancel ends the call at once."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class RouteClient:
    """The means to call one route: an LLM client, the model and the time limit.

    `model` is for tasks that name no model; None leaves the choice to the provider. `structured` is
    the form in which the server takes a schema. `context_tokens` is how many tokens the model
    takes, None if unknown. `wordings` say what refusals of the server mean.
    """

    llm: LLM
    model: str | None
    timeout_s: float
    structured: Structured = Structured.JSON_SCHEMA
    context_tokens: int | None = None
    wordings: Wordings = NO_WORDINGS
