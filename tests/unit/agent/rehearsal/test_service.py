"""The rehearsal LLM without its socket: answers, faults, and memory."""

import io
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import jsonschema_rs
import orjson
import pytest

from agent.llm.client import MAX_REPLY_BYTES
from agent.rehearsal import faults, run
from agent.rehearsal.answers import example, summary, text_of
from agent.rehearsal.child import rehearsal_child
from agent.rehearsal.faults import Faults
from agent.rehearsal.record import CallRecord
from agent.rehearsal.service import Service
from agent.rehearsal.wire import Ending, Request, ResponsePlan
from schemas.errors import ConfigError
from schemas.runtime.clock import SystemClock

SCHEMA = {
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
    return made.plan(Request("POST", "/faults", {}, body, local))


def get(made: Service, path: str) -> Any:
    return body_of(made.plan(Request("GET", path, {}, b"")))


# ---- answers


def test_a_summary_is_text_of_the_document() -> None:
    """A summary has the sentences with the frequent words, in order, without the instruction."""
    text = "Summarize: It rained. The harvest costs money. Nobody came. A harvest which costs money is a harvest."

    assert summary(text) == "The harvest costs money. A harvest which costs money is a harvest."
    assert summary(text) == summary(text)


@pytest.mark.parametrize("text", ["", "   \n ", "Summarize: "])
def test_an_empty_document(text: str) -> None:
    """Even an empty document gets an answer."""
    assert summary(text)


def test_an_example_fits_its_schema() -> None:
    """An object made for a schema is valid, has the required fields, and no others."""
    made = example(SCHEMA, "Sales rose.")

    jsonschema_rs.validate(SCHEMA, made)
    assert set(made) == set(SCHEMA["required"])
    assert made["name"] == "Sales"


def test_a_schema_that_refers_to_itself_ends() -> None:
    """A recursive schema gives an example of bounded depth."""
    assert example({"$ref": "#"}, "x") is None
    assert "next" in example({"properties": {"next": {"$ref": "#"}}}, "x")


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    """2.0 counts as a whole number, as in JSON Schema."""
    assert (
        example({"type": "string", "minLength": 9.0, "maxLength": 5.0}, "Sales rose.")
        == "Sales...."
    )
    assert example({"type": "array", "minItems": 2.0, "items": {"type": "integer"}}, "x") == [0, 0]


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


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"content": "no"}, {"content": "yes"}], "yes"),
        (
            [
                {
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "image_url"},
                        {"type": "text", "text": "b"},
                    ]
                }
            ],
            "a\nb",
        ),
        ([{"content": None}], ""),
        (["odd"], ""),
    ],
)
def test_the_text_of_messages(messages: list[Any], text: str) -> None:
    """The last message counts, as text or as parts."""
    assert text_of(messages) == text


# ---- faults


def test_faults_are_read_as_they_are_written() -> None:
    """A fault option has shares and settings, and reads back as the same mapping."""
    read = faults.parse("429=0.05, hang=0.01,retry_after=2")

    assert read == Faults({"429": 0.05, "hang": 0.01}, retry_after=2.0)
    assert faults.read(read.as_mapping()) == read
    assert faults.parse("") == Faults()


@pytest.mark.parametrize(
    "text", ["hangs=0.1", "429", "429=x", "429=-1", "429=nan", "99=0.1", "429=0.6,500=0.6", "=1"]
)
def test_faults_that_are_none(text: str) -> None:
    """Impossible faults are refused."""
    with pytest.raises(ConfigError):
        faults.parse(text)


def test_the_shares_of_faults_are_kept() -> None:
    """Over many calls, each fault occurs as often as requested."""
    dialed = faults.parse("429=0.1,hang=0.02")
    drawn = Counter(dialed.pick(faults.draw(1, f"b/{number}", 1)[0]) for number in range(10_000))

    assert 900 < drawn["429"] < 1100
    assert 150 < drawn["hang"] < 250


def test_the_same_call_has_the_same_fault_and_a_repeated_one_another() -> None:
    """The draw depends on seed, request and number of the call, not on the order of arrival."""
    draws = {faults.draw(seed, name, nth) for seed in (1, 2) for name in "ab" for nth in (1, 2)}

    assert len(draws) == 8
    assert faults.draw(1, "a", 1) in draws


# ---- the service


def test_a_completion_echoes_model_and_counts() -> None:
    """The answer has the shape of a chat completion with usage."""
    said = body_of(service().plan(chat()))

    assert said["model"] == "m"
    assert said["choices"][0]["finish_reason"] == "stop"
    assert (
        said["usage"]["total_tokens"]
        == said["usage"]["prompt_tokens"] + said["usage"]["completion_tokens"]
    )


def test_a_schema_in_the_request_is_honoured() -> None:
    """A request with a schema is answered with JSON that fits it."""
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}

    said = body_of(service().plan(chat(response_format=wanted)))

    jsonschema_rs.validate(SCHEMA, json.loads(said["choices"][0]["message"]["content"]))


def test_faults_that_answer() -> None:
    """A rate limit has Retry-After, a malformed answer is no JSON, a wrong schema lacks choices.

    A wrong schema may also lack the object.
    """
    limited = service("429=1,retry_after=2").plan(chat())
    malformed = service("malformed=1").plan(chat())
    wrong = [
        service("wrong_schema=1").plan(chat(**more))
        for more in ({}, {"response_format": {"json_schema": {"schema": SCHEMA}}})
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


def test_calls_are_remembered() -> None:
    """Calls are counted by task, status and fault, and each start and end is logged."""
    log = io.BytesIO()
    made = service(log=log)
    first, second = made.plan(chat()), made.plan(chat())
    assert first.done is not None
    assert second.done is not None

    first.done(120, False)  # noqa: FBT003 - the signature of Plan.done
    during = get(made, "/stats")
    second.done(0, True)  # noqa: FBT003 - the same
    after = get(made, "/stats")

    assert (during["in_flight"], after["in_flight"]) == (1, 0)
    assert (after["total"], after["calls"], after["statuses"]) == (
        2,
        {"b/t": 2},
        {"200": 1, "0": 1},
    )
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [
        (line["event"], line.get("path"), line.get("status"), line.get("bytes")) for line in lines
    ] == [
        ("start", "/v1/chat/completions", None, None),
        ("start", "/v1/chat/completions", None, None),
        ("end", None, 200, 120),
        ("end", None, 0, 0),
    ]
    assert {line["id"] for line in lines} == {"b/t#1"}


def test_end_of_a_call_names_its_fault() -> None:
    """The log of a failed call names its fault.

    A checker can thus tell a planned failure from one of docllm's own.
    """
    log = io.BytesIO()
    made = service("503=1", log=log)
    call = made.plan(chat())
    assert call.done is not None

    call.done(50, False)  # noqa: FBT003 - the signature of Plan.done

    assert [json.loads(line).get("fault") for line in log.getvalue().splitlines()] == [None, "503"]


def test_paths_that_are_not_there() -> None:
    """Models are listed; another path, or a body that is no request, is the caller's error."""
    made = service()

    assert get(made, "/v1/models")["data"][0]["id"] == "rehearsal"
    assert status_of(made.plan(Request("GET", "/v2", {}, b""))) == 404
    assert [
        status_of(made.plan(Request("POST", "/v1/chat/completions", {}, body)))
        for body in (b"{", b"{}", b"[]", b'{"messages":[]}')
    ] == [400] * 4


@pytest.mark.parametrize(
    "options", [["--faults", "x=1"], ["--latency", "fast"], ["--latency", "2-1"]]
)
def test_options_that_are_wrong(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option is exit code 2 with the right form."""
    assert run(options) == 2
    assert capsys.readouterr().err


def test_options_with_an_open_quote_are_usage() -> None:
    """Options with an open quote are a usage error, and nothing is started."""
    with pytest.raises(ConfigError, match="--rehearsal-options"), rehearsal_child("--latency '1"):
        pass
