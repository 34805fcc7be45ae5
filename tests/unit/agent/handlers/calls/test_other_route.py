"""A call that goes on to another route: its model, its form of a schema, its cost."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import Context, OtherRoute
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.other_route import body_for
from docllm.agent.ports import Call, CallFailed, Reply, RouteClient
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Snooze
from docllm.schemas.clients.structured_output import response_format
from docllm.schemas.settings.config import Price, Structured
from tests.support.handlers import (
    OPENAI,
    TASK,
    FakeLLM,
    HandlersHarness,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)

TOO_LONG = Reply(400, {}, b'{"error": {"code": "context_length_exceeded", "message": "too long"}}')
SCHEMA = {"type": "object"}


async def slowly(
    complete: Callable[[Call], Awaitable[Reply | CallFailed]], call: Call
) -> Reply | CallFailed:
    """Let another call begin before this one is answered."""
    reply = await complete(call)
    await asyncio.sleep(0)
    return reply


class TwoRoutes:
    """Handlers over two routes; each attempt may go on once, to the second."""

    def __init__(self, *replies: Reply, second: RouteClient | None = None, **by_type: Any) -> None:
        self.first, self.other = FakeLLM([TOO_LONG]), FakeLLM(list(replies) or [completion()])
        client = second or RouteClient(self.other, "large", 90.0, Structured.JSON_OBJECT)
        clients = {
            "default": RouteClient(self.first, "small", 30.0),
            "second": replace(client, llm=self.other),
        }
        harness: HandlersHarness = handlers_harness(**by_type)
        self.tools = replace(
            harness.tools,
            route_client=clients.__getitem__,
            prices={"m": Price(1.0, 1.0), "small": Price(1000.0, 0.0)},
        )
        harness.handlers._tools = self.tools
        self.harness, self.keeps_lease = harness, True
        self.failures: list[Retry | Snooze | Dead] = []

    def run(
        self, task: dict[str, Any] = TASK, limit_s: float | None = None, **attempt: Any
    ) -> Outcome:
        """Run one attempt at a task."""
        run = self.harness.attempt(
            value=orjson.dumps(task),
            refused_alone=True,
            route_after_failure=partial(self._route_after_failure, limit_s),
            **attempt,
        )
        return asyncio.run(self.harness.handlers.run(run))

    def _route_after_failure(
        self, limit_s: float | None, outcome: Retry | Snooze | Dead
    ) -> OtherRoute | Outcome:
        self.failures.append(outcome)
        self.harness.leased = self.keeps_lease
        return OtherRoute("second", limit_s) if len(self.failures) == 1 else outcome

    def sent(self) -> list[dict[str, Any]]:
        """Return the bodies of the calls to the second route."""
        return [orjson.loads(call.body) for call in self.other.calls]


def test_the_call_is_made_again_with_the_other_model() -> None:
    """The answer of the second route is the result, under a request id of its own."""
    two = TwoRoutes()

    succeeded(two.run())

    assert two.failures[0].failure.error_class == "TOO_LONG"
    (body,) = two.sent()
    assert body["model"] == "large"
    assert body["messages"] == orjson.loads(two.first.calls[0].body)["messages"]
    assert [two.first.calls[0].request_id, two.other.calls[0].request_id] == [
        "b/a%2F1#1",
        "b/a%2F1#1.2",
    ]
    assert two.other.calls[0].timeout_s == 60.0


@pytest.mark.parametrize(
    "task",
    [
        TASK | {"model": "small"},
        OPENAI | {"body": {"model": "small", "messages": [{"role": "user", "content": "hi"}]}},
    ],
)
def test_an_attempt_that_begins_on_a_fallback_uses_the_model_of_that_route(
    task: dict[str, Any],
) -> None:
    """The model that the task names belongs to its first route, which takes no calls now."""
    two = TwoRoutes()

    succeeded(two.run(task, route="second", is_on_fallback=True))

    assert [body["model"] for body in two.sent()] == ["large"]
    assert two.first.calls == []


@pytest.mark.parametrize("model", [{"model": "small"}, {}])
def test_the_context_of_a_fallback_is_that_of_its_own_model(model: dict[str, str]) -> None:
    """Long documents are cut for the model that reads them."""
    seen: list[int | None] = []

    async def note(context: AttemptContext) -> str:
        seen.append(context.context_tokens)
        await context.complete({"model": context.model, "messages": []})
        seen.append(context.context_tokens)
        return "done"

    two = TwoRoutes(
        second=RouteClient(FakeLLM([]), "large", 90.0, context_tokens=2000), document=note
    )

    two.run(TASK | model)

    assert seen[-1] == 2000


def test_calls_that_were_under_way_follow_the_first_that_leaves_its_route() -> None:
    """A failure on the route that was left says nothing about the new one."""

    async def both(context: Context) -> list[str]:
        body = {"model": "small", "messages": []}
        answers = await asyncio.gather(context.complete(body), context.complete(body))
        return [answer.text for answer in answers]

    two = TwoRoutes(document=both)
    two.tools.route_client("default").llm.complete = partial(slowly, two.first.complete)  # type: ignore[method-assign]

    succeeded(two.run())

    assert (len(two.first.calls), len(two.other.calls), len(two.failures)) == (2, 2, 1)
    assert {body["model"] for body in two.sent()} == {"large"}


def test_a_late_answer_counts_for_the_route_that_gave_it() -> None:
    """Its sibling has left the route meanwhile; the sums by route stay right."""
    late_began, early_left = asyncio.Event(), asyncio.Event()

    async def both(context: Context) -> str:
        bodies: list[dict[str, Any]] = [
            {"model": "small", "messages": [], "user": name} for name in ("early", "late")
        ]
        early, late = await asyncio.gather(*map(context.complete, bodies))
        return early.text + late.text

    async def first(call: Call) -> Reply | CallFailed:
        if b"early" in call.body:
            await late_began.wait()
            return TOO_LONG
        late_began.set()
        await early_left.wait()
        answer = orjson.loads(completion().body) | {"model": "small"}
        return Reply(200, {}, orjson.dumps(answer))

    async def second(call: Call) -> Reply | CallFailed:
        early_left.set()
        return completion()

    two = TwoRoutes(document=both)
    two.tools.route_client("default").llm.complete = first  # type: ignore[method-assign]
    two.tools.route_client("second").llm.complete = second  # type: ignore[method-assign]

    outcome = succeeded(two.run())

    (left,) = outcome.spent.on_left_routes
    assert (left.route, left.spent.calls, left.spent.cost_micro) == ("default", 2, 10 * 1000)
    here = outcome.spent.on_this_route
    assert (here.calls, here.cost_micro) == (1, 10 + 2)


def test_a_probe_has_its_own_time_limit() -> None:
    """The limit comes with the permit of the second route."""
    two = TwoRoutes()
    two.run(limit_s=2.5)

    assert two.other.calls[0].timeout_s == 2.5


def test_the_costs_of_both_routes_are_added() -> None:
    """Each call has the price of its own model."""
    filtered = orjson.loads(completion(reason="content_filter").body) | {"model": "small"}
    two = TwoRoutes()
    two.first.replies = [Reply(200, {}, orjson.dumps(filtered))]

    outcome = succeeded(two.run())

    assert (outcome.spent.model, outcome.spent.tokens_in) == ("m", 20)
    assert outcome.spent.cost_micro == 10 * 1000 + 10 + 2
    assert (outcome.spent.on_this_route.cost_micro, outcome.spent.on_this_route.tokens_in) == (
        10 + 2,
        10,
    )
    (left,) = outcome.spent.on_left_routes
    assert (left.route, left.error_class, left.spent.model) == ("default", "FILTERED", "small")
    assert left.spent.cost_micro == 10 * 1000


def test_a_call_that_cost_nothing_is_counted_all_the_same() -> None:
    """A refusal has no usage, but it may be one of the day's calls."""
    outcome = succeeded(TwoRoutes().run())

    (left,) = outcome.spent.on_left_routes
    assert (left.spent.calls, left.spent.cost_micro) == (1, 0)
    assert outcome.spent.on_this_route.calls == 1


def test_the_second_failure_is_the_outcome() -> None:
    """The attempt ends with what the last route said."""
    two = TwoRoutes(Reply(400, {}, b'{"error": {"message": "bad field"}}'))

    assert failure_of(two.run()).error_class == "BAD_REQUEST"


def test_the_model_that_a_task_names_is_one_of_its_first_route() -> None:
    """In both formats of lines the second route gets its own model."""
    for task in (TASK | {"model": "mine"}, OPENAI | {"body": OPENAI["body"] | {"model": "mine"}}):
        two = TwoRoutes()
        two.run(task)
        assert orjson.loads(two.first.calls[0].body)["model"] == "mine"
        assert two.sent()[0]["model"] == "large"


def test_later_calls_of_a_handler_stay_on_the_second_route() -> None:
    """A body that was made before goes to the second route too, with the right model."""

    async def twice(context: Context) -> list[str | None]:
        body: dict[str, Any] = {"model": context.model, "messages": []}
        await context.complete(body)
        await context.complete(body)
        return [context.model]

    two = TwoRoutes(twice=twice)
    outcome = succeeded(two.run({"id": "a", "type": "twice"}))

    assert orjson.loads(outcome.body) == ["large"]
    assert len(two.first.calls) == 1
    assert [body["model"] for body in two.sent()] == ["large", "large"]


def test_no_call_is_made_without_a_lease() -> None:
    """The lease may end between the two calls."""
    two = TwoRoutes()
    two.keeps_lease = False

    two.run()

    assert two.other.calls == []


@pytest.mark.parametrize("before", list(Structured))
@pytest.mark.parametrize("after", list(Structured))
def test_a_schema_takes_the_form_of_the_route(before: Structured, after: Structured) -> None:
    """A form that the handler asked for is replaced; without one, none is added."""
    client = RouteClient(FakeLLM([]), None, 1.0, after)
    body = orjson.dumps({"model": "m", "n": 1, **response_format(SCHEMA, before)})

    expected = {"n": 1} | ({} if before is Structured.NONE else response_format(SCHEMA, after))
    assert orjson.loads(body_for(client, body, SCHEMA)) == expected


def test_a_form_of_the_persons_own_stays() -> None:
    """A body is changed only in what docllm wrote itself."""
    own = {"response_format": {"type": "text"}}
    client = RouteClient(FakeLLM([]), "x", 1.0, Structured.NONE)

    for schema in (SCHEMA, None):
        sent = orjson.loads(body_for(client, orjson.dumps(own), schema))
        assert sent == {"model": "x"} | own
