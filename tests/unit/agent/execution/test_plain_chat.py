"""The short way of a plain chat task does what the handler of the built-in chat does."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.attempt_runner import AttemptRunner, plain_request
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers.calls.permits import FREE_PERMITS
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.lease import Lease
from docllm.agent.ports import CallFailed, Partition, Reply, RouteClient
from docllm.agent.ports.lock_table import LockTable
from docllm.agent.ports.outcome import Outcome, Released, Succeeded
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.agent.routes import RouteCall
from docllm.schemas.objects.write_once import WriteOnceStore
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.result.notes import NoteKind
from tests.support.handlers import OPENAI, HandlersHarness, completion, handlers_harness
from tests.support.ledger import new_row

PLAIN: dict[str, Any] = {
    "id": "a",
    "prompt": "Summarize: {document}",
    "input": {"text": "Sales \u00e4 rose."},
}
TYPES = {"prompted": TypeConfig(prompt="Translate: {document}"), "checked": TypeConfig(schema={})}


def harness(*replies: Reply | CallFailed) -> HandlersHarness:
    return handlers_harness(*replies, types=TYPES)


def run(harnessed: HandlersHarness, task: dict[str, Any], *, plain: bool = True) -> Outcome:
    """Run an attempt as a slot does; without `plain`, by the handler alone."""
    batch = "b"
    if not plain:
        return harnessed.run(task, batch=batch, left_s=650.0)
    row = new_row(
        status=1, owner=9, fence=2, counted_before=0, max_attempts=5, batch=batch,
        type="openai" if "body" in task else task.get("type", "document"),
    )  # fmt: skip
    delivery = Delivery(
        Partition("g.tasks", "id", 0, 1),
        5,
        0,
        Publication(ledger="ledger", group="g", batch=batch, task_id=7, fence=2),
        orjson.dumps(task),
        None,
        "default",
        row=replace(row, task_key=task.get("id", "a").encode()),
        claimed_at_s=harnessed.clock.now_s(),
        lease=Lease(1, harnessed.clock.now_s() if harnessed.leased else -100.0),
    )
    runner = AttemptRunner(
        handlers=harnessed.handlers,
        locks=ResourceLocks(table=cast("LockTable", None), clock=harnessed.clock),
        outputs=Outputs(store=cast("WriteOnceStore", None), allow=(), clock=harnessed.clock),
        clock=harnessed.clock,
        claim_s=660.0,
    )
    start = AttemptStart(RouteCall("default", 0, 100.0), FREE_PERMITS, refused_alone=False)
    routes = AttemptRoutes(admission=cast("Admission", None), delivery=delivery, start=start)
    delivery.line = task
    return asyncio.run(runner.run(delivery, start, routes))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"model": "m"},
        {"params": {"temperature": 0, "max_tokens": 9, "n": 2}},
        {"prompt": "Say hello", "input": None},
        {"prompt": None, "type": "prompted"},
        {"metadata": {"a": 1}, "tenant": "t", "priority": 9, "deadline": "2099-01-01T00:00:00Z"},
        {"id": "\u00fc b/c#d%"},
        # Left to the handler: the outcome is the same all the same.
        {"input": {"text": " \n"}},
        {"prompt": "Twice {document} {document}"},
        {"prompt": "No place"},
        {"prompt": "Other form {{document}}"},
        {"schema": {"type": "object"}},
        {"type": "checked"},
        {"type": "prompted", "prompt": None, "input": None},
    ],
)  # fmt: skip
def test_both_ways_send_the_same_and_end_alike(more: dict[str, Any]) -> None:
    """Body, id, time-out and outcome of a call do not depend on the way."""
    given = {name: value for name, value in (PLAIN | more).items() if value is not None}
    assert_alike(given)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"model": "m", "max_tokens": 5},
        {"model": None},
        {"temperature": 0, "metadata": {"a": 1}, "stream": False},
    ],
)
def test_lines_of_openais_format_too(more: dict[str, Any]) -> None:
    """The body is sent as it is, and any answer is the result."""
    given = {**OPENAI, "body": OPENAI["body"] | more}

    assert_alike(given, completion("", "length"))
    assert (
        plain_request(given, 100, harness().tools.plan("openai", "default"), is_on_fallback=False)
        is not None
    )


def assert_alike(given: dict[str, Any], *replies: Reply) -> None:
    short, long = harness(*replies), harness(*replies)

    outcomes = run(short, given), run(long, given, plain=False)

    assert outcomes[0] == outcomes[1]
    assert [replace(call, timeout_s=0) for call in short.llm.calls] == [
        replace(call, timeout_s=0) for call in long.llm.calls
    ]


@pytest.mark.parametrize(
    ("more", "type_name"),
    [
        ({"input": {"uri": "file:///a.txt"}}, "document"),
        ({"input": {"text": " "}}, "document"),
        ({"schema": {}}, "document"),
        ({"output_uri": "s3://a/"}, "document"),
        ({"time_limit_s": 5}, "document"),
        ({"body": {}, "time_limit_s": 5}, "openai"),
        ({"prompt": "{document} {document}"}, "document"),
        ({"prompt": "{document} {{x}}"}, "document"),
        ({"unknown": 1}, "document"),
    ],
)
def test_what_is_not_plain_is_left_to_the_handlers(more: dict[str, Any], type_name: str) -> None:
    """No part of such a line is read twice in two ways."""
    plan = harness().tools.plan(type_name, "default")

    assert plain_request(PLAIN | more, 100, plan, is_on_fallback=False) is None
    assert plain_request(None, 100, plan, is_on_fallback=False) is None
    assert plain_request(PLAIN, 2 << 20, plan, is_on_fallback=False) is None
    assert plain_request(PLAIN, 100, plan, is_on_fallback=False) is not None


def test_a_type_with_a_handler_or_rules_of_its_own_is_not_plain() -> None:
    """A schema, a time limit, or a handler of the type is not for the short way."""
    harnessed = harness()

    assert harnessed.handlers.plain_plan("document", "default") is not None
    assert harnessed.handlers.plain_plan("checked", "default") is None
    assert harnessed.handlers.plain_plan("map-reduce", "default") is None


def test_a_failed_call_goes_on_in_the_handler_without_another_call() -> None:
    """The handler decides about the failure; the refused call is counted once."""
    refusal = Reply(429, {"retry-after": "7"}, b'{"error": {"message": "slow down"}}')
    short, long = harness(refusal), harness(refusal)

    outcomes = run(short, PLAIN), run(long, PLAIN, plain=False)

    assert len(short.llm.calls) == 1
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].spent.calls == 1


def test_no_call_is_made_without_a_lease() -> None:
    """The claim is given back, as by a handler."""
    harnessed = harness()
    harnessed.leased = False

    assert isinstance(run(harnessed, PLAIN), Released)
    assert harnessed.llm.calls == []


def test_a_cut_prompt_is_noted() -> None:
    """The answer is kept with a note beside it."""
    reply = orjson.loads(completion().body)
    reply["usage"] = {"prompt_tokens": 2048, "completion_tokens": 1}
    long_text = PLAIN | {"input": {"text": "word " * 20_000}}

    outcome = run(harness(Reply(200, {}, orjson.dumps(reply))), long_text)

    assert isinstance(outcome, Succeeded)
    assert outcome.notes == ((NoteKind.TRUNCATED_INPUT, ()),)


def test_calls_and_what_is_left_of_limits_are_measured() -> None:
    """Both ways tell the metrics how long calls take and what the provider says is left."""
    metrics = AgentMetrics(group="g", routes=(), counters=(), gauges=())
    headers = {"x-ratelimit-remaining-tokens": "70", "x-ratelimit-limit-tokens": "100"}
    harnessed = harness(replace(completion(), headers=headers))
    tools = replace(harnessed.tools, measures=metrics)
    harnessed.handlers.apply(tools=tools, by_type={})

    run(harnessed, PLAIN)
    run(harnessed, PLAIN, plain=False)

    shown = metrics.text().decode()
    assert 'docllm_ratelimit_remaining{group="g",kind="tokens",route="default"} 70.0' in shown
    assert 'docllm_call_duration_seconds_count{group="g",route="default"} 2.0' in shown


def test_a_prepared_plan_ends_with_its_settings() -> None:
    """After the settings were read again, attempts begin with plans of the new ones."""
    harnessed = harness()
    former = harnessed.handlers.plain_plan("document", "default")
    client = RouteClient(harnessed.llm, "new-model", 30.0)
    tools = replace(harnessed.tools, route_client=lambda _route: client)
    harnessed.handlers.apply(tools=tools, by_type={})

    outcome = run(harnessed, PLAIN)

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(harnessed.llm.calls[0].body)["model"] == "new-model"
    assert former is not None
    assert former.client.model == "default-model"


def test_the_failure_of_a_blank_document_is_the_handlers() -> None:
    """The short way refuses nothing by itself."""
    outcome = run(harness(), PLAIN | {"input": {"text": "  "}})

    assert outcome.failure.error_class == ErrorClass.DOCUMENT_REFUSED  # type: ignore[union-attr]
