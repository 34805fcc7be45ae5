"""How a call that failed on one route is made again on another one. Pure."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from docllm.agent.handlers.calls.permits import CallPermits, FreePermits
from docllm.agent.handlers.calls.request import body_bytes
from docllm.agent.ports import RouteClient
from docllm.schemas.clients.structured_output import response_format
from docllm.schemas.settings.config import Structured


@dataclass(frozen=True, slots=True)
class OtherRoute:
    """The route on which an attempt continues.

    `limit_s` is the time limit of its call; None means the route's own limit. `call_permits` gives
    its calls on this route their permits.
    """

    name: str
    limit_s: float | None = None
    call_permits: CallPermits = field(default_factory=FreePermits, compare=False)


def body_for(client: RouteClient, body: bytes, schema: dict[str, Any] | None) -> bytes:
    """Return the body of a call by this route's client: with its model, and its form of a schema.

    The body was made for another route, and so was the model in it.
    """
    fields = orjson.loads(body)
    fields.pop("model", None)
    forms = [] if schema is None else [response_format(schema, form) for form in Structured]
    if any(form.items() <= fields.items() for form in forms if form):
        fields.pop("response_format")
        fields |= response_format(schema, client.structured)
    return body_bytes(({"model": client.model} if client.model else {}) | fields)
