"""The rehearsal LLM without its socket: completions, faults, and its own pages."""

import json
from dataclasses import replace
from typing import Any

import jsonschema_rs
import orjson
import pytest

from docllm.agent.llm.rehearsal import faults
from docllm.agent.llm.rehearsal.provider_limits import ProviderLimits
from docllm.agent.llm.rehearsal.service import CallRecord, Service
from docllm.agent.llm.rehearsal.wire import Ending, Request, ResponsePlan
from docllm.agent.ports.llm import MAX_REPLY_BYTES
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.quota import QuotaLimits

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"name": {"type": "string", "maxLength": 5}},
    "properties": {
        "name": {"$ref": "#/$defs/name"},
        "kind": {"enum": ["invoice", "letter"]},
        "version": {"const": 2},
        "total": {"type": "number", "minimum": 3},
        "paid": {"type": "boolean"},
        "note": {"type": ["null", "string"]},
        "lines": {
            "type": "array",
            "minItems": 2,
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "unasked": {"type": "string"},
    },
    "required": ["name", "kind", "version", "total", "paid", "note", "lines"],
    "additionalProperties": False,
}


def service(
    dialed: str = "", *, latency_s: tuple[float, float] = (0.0, 0.0), seed: int = 1, log: Any = None
) -> Service:
    record = CallRecord(clock=SystemClock(), log=log)
    return Service(record=record, dialed=faults.parse(dialed), latency_s=latency_s, seed=seed)


def chat(text: str = "Summarize: Sales rose.", name: str = "b/t", **fields: Any) -> Request:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields})
    return Request("POST", "/v1/chat/completions", {"x-client-request-id": f"{name}#1"}, body)


def status_of(plan: ResponsePlan) -> int:
    return int(plan.answer.split(b" ", 2)[1])


def body_of(plan: ResponsePlan) -> Any:
    return json.loads(plan.answer.partition(b"\r\n\r\n")[2])


def dial(made: Service, body: bytes, *, local: bool = True) -> ResponsePlan:
    return made.plan(Request(method="POST", path="/faults", headers={}, body=body, local=local))


def get(made: Service, path: str) -> Any:
    return body_of(made.plan(Request("GET", path, {}, b"")))


# ---- answers


TREE = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefgh"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": ["a"]},
        {"type": "object", "required": 5},
        {"type": "string", "minLength": "x"},
        {"enum": {"a": 1}},
        {"type": []},
        {"$ref": 5},
        {"const": "DEEP"},
        {"type": "array", "minItems": 10**15},
        {"type": "string", "minLength": 10**15},
        TREE,
    ],
)
def test_a_schema_that_gives_no_small_answer_is_refused(schema: Any) -> None:
    """A schema without a small answer is refused at once, as by a provider.

    It used to cut the connection, or block all calls as long as the memory lasted.
    """
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    request = chat(response_format=wanted)
    request = replace(request, body=request.body.replace(b'"DEEP"', b"[" * 260 + b"]" * 260))

    plan = service().plan(request)

    assert (status_of(plan), body_of(plan)["error"]["code"]) == (400, "invalid_request_error")


# ---- faults


# ---- the service


def test_a_completion_echoes_model_and_counts() -> None:
    """The answer has the shape of a chat completion with usage."""
    body = body_of(service().plan(chat()))

    assert body["model"] == "m"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert (
        body["usage"]["total_tokens"]
        == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    )


def test_a_schema_in_the_request_is_honoured() -> None:
    """A request with a schema is answered with JSON that fits it."""
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}

    body = body_of(service().plan(chat(response_format=wanted)))

    jsonschema_rs.validate(SCHEMA, json.loads(body["choices"][0]["message"]["content"]))


def test_faults_that_answer() -> None:
    """A rate limit has Retry-After, a malformed answer is no JSON, a wrong schema lacks choices.

    A wrong schema may also lack the object.
    """
    limited = service("429=1,retry_after=2").plan(chat())
    malformed = service("malformed=1").plan(chat())
    wrong = [
        service("wrong_schema=1").plan(asked)
        for asked in (
            chat(),
            chat(response_format={"json_schema": {"schema": SCHEMA}}),
        )
    ]

    assert status_of(limited) == 429
    assert b"Retry-After: 2\r\n" in limited.answer
    assert status_of(malformed) == 200
    with pytest.raises(json.JSONDecodeError):
        body_of(malformed)
    assert body_of(wrong[0])["choices"] == []
    assert body_of(wrong[1])["choices"][0]["message"]["content"] == "null"


def test_faults_of_time_and_connection() -> None:
    """A hang, a cut and a slow call are planned as such."""
    plans = [service(f"{name}=1,slow_s=9").plan(chat()) for name in ("hang", "cut", "slow")]

    assert [plan.ending for plan in plans] == [Ending.HANG, Ending.CUT, Ending.KEEP]
    assert [plan.delay_s for plan in plans] == [0, 0, 9]


def test_latency_lies_in_its_range() -> None:
    """Each call has its own latency within the range."""
    made = service(latency_s=(0.1, 2.0))
    delays = {made.plan(chat(name=f"b/{number}")).delay_s for number in range(100)}

    assert len(delays) == 100
    assert 0.1 <= min(delays) < max(delays) <= 2.0


def test_faults_change_at_run_time() -> None:
    """A POST to /faults replaces the faults, as text or JSON; a wrong one changes nothing.

    The answer says why.
    """
    made = service()

    for body, status in (
        (b'{"500": 1}', 500),
        (b"503=1, retry_after=2", 503),
        (b"", 200),
        (b"500=1", 500),
    ):
        assert status_of(dial(made, body)) == 200
        assert status_of(made.plan(chat())) == status
    wrong = [dial(made, body) for body in (b'{"x": 1}', b"{", b"[]", b"x=1", b"500", b"\xff")]

    assert [status_of(plan) for plan in wrong] == [400] * 6
    assert get(made, "/faults") == {"500": 1.0, "slow_s": 5.0}


def test_faults_are_not_changed_from_elsewhere() -> None:
    """A server on all addresses accepts changes of faults only from its own machine."""
    made = service()

    refused = dial(made, b"500=1", local=False)

    assert status_of(refused) == 403
    assert status_of(made.plan(chat())) == 200


def test_a_used_up_quota_looks_as_providers_show_it() -> None:
    """A used-up quota has status 429 like a rate limit, but a code and no Retry-After.

    The code says that waiting will not help.
    """
    plan = service("quota=1,retry_after=2").plan(chat())

    assert status_of(plan) == 429
    assert body_of(plan)["error"]["code"] == "insufficient_quota"
    assert b"Retry-After" not in plan.answer


def test_a_huge_answer_is_one_that_no_agent_takes() -> None:
    """A huge answer is complete and well-formed, but beyond every limit."""
    plan = service("huge=1").plan(chat())

    assert len(plan.answer) > MAX_REPLY_BYTES
    assert body_of(plan)["choices"][0]["finish_reason"] == "stop"


def test_unknown_paths_are_refused() -> None:
    """Models are listed; another path, or a body that is no request, is the caller's error."""
    made = service()

    assert get(made, "/v1/models")["data"][0]["id"] == "rehearsal"
    assert status_of(made.plan(Request("GET", "/v2", {}, b""))) == 404
    # As at most servers, for a base URL without /v1.
    assert status_of(made.plan(Request("POST", "/chat/completions", {}, b"{}"))) == 404
    assert [
        status_of(made.plan(Request("POST", "/v1/chat/completions", {}, body)))
        for body in (b"{", b"{}", b"[]", b'{"messages":[]}')
    ] == [400] * 4


# ---- limits


def limited(*, shows_limits: bool) -> Service:
    clock = SystemClock()
    return Service(
        record=CallRecord(clock=clock, log=None),
        dialed=faults.parse(""),
        latency_s=(0.0, 0.0),
        seed=1,
        limits=ProviderLimits(limits=QuotaLimits(in_flight=1, rpm=60), window_s=10, clock=clock),
        shows_limits=shows_limits,
    )


@pytest.mark.parametrize("shows_limits", [True, False])
def test_a_call_above_a_limit_is_refused(shows_limits: bool) -> None:  # noqa: FBT001
    """The answer is a 429 whose headers say when to come again, if headers are wanted."""
    server = limited(shows_limits=shows_limits)

    first, second = server.plan(chat()), server.plan(chat())

    assert (status_of(first), status_of(second)) == (200, 429)
    assert (b"x-ratelimit-remaining-requests: 54\r\n" in first.answer) is shows_limits
    assert (b"Retry-After: 1.000\r\n" in second.answer) is shows_limits
    assert body_of(first)["usage"]
    assert body_of(second)["error"]["message"] == "the rehearsed limit in_flight is reached"


def test_a_call_that_ends_makes_room() -> None:
    """A refused call took no room."""
    server = limited(shows_limits=True)
    first, refused = server.plan(chat()), server.plan(chat())
    assert first.done is not None
    assert refused.done is not None

    refused.done(100, False)  # noqa: FBT003
    assert status_of(server.plan(chat())) == 429
    first.done(100, False)  # noqa: FBT003
    assert status_of(server.plan(chat())) == 200
    assert get(server, "/stats")["faults"] == {"in_flight": 1}
