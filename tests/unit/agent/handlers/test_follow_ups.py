"""A follow-up is checked when it is ordered, and is a part of the success alone."""

from functools import partial
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import Context, FollowUpError
from docllm.agent.handlers import follow_ups as limits
from docllm.agent.handlers.handler_run import Inherited
from docllm.agent.ports.outcome import FollowUp, Succeeded
from docllm.agent.routes.names import RouteNames, route_refusal
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.lanes import Lane
from tests.support.handlers import failure_of, handlers_harness, succeeded

TASK: dict[str, Any] = {"id": "a", "type": "parent"}
IN_EU = TASK | {"routes_allowed": ["eu"]}
LINE = {"id": "a/1", "prompt": "Summarize."}
TYPES = {"parent": TypeConfig(), "child": TypeConfig(time_limit_s=60)}


def ordered(*lines: Any, task: dict[str, Any] = TASK, **attempt: Any) -> tuple[FollowUp, ...]:
    """Return the follow-ups of a handler that orders these lines and succeeds."""

    async def parent(context: Context) -> str:
        for line in lines:
            await context.follow(line)
        return "done"

    outcome = succeeded(handlers_harness(types=TYPES, parent=parent).run(task, **attempt))
    return outcome.follow_ups


def refusal(*lines: Any, task: dict[str, Any] = TASK, **attempt: Any) -> str:
    """Return why the last of these lines is refused."""
    caught: list[str] = []

    async def parent(context: Context) -> str:
        for line in lines:
            try:
                await context.follow(line)
            except FollowUpError as error:
                caught.append(str(error))
        return "done"

    assert isinstance(handlers_harness(types=TYPES, parent=parent).run(task, **attempt), Succeeded)
    (reason,) = caught
    return reason


def test_a_success_carries_what_its_handler_ordered() -> None:
    """Each line is stored as it was given, with what it says of itself."""
    child = {
        "id": "a/2",
        "type": "child",
        "tenant": "acme",
        "priority": 8,
        "max_attempts": 2,
        "metadata": {"page": 3},
    }

    first, second = ordered(LINE, child)

    assert (first.key, orjson.loads(first.value), first.type) == ("a/1", LINE, "document")
    assert (first.tenant, first.lane, first.max_attempts) == ("default", Lane.NORMAL, 5)
    assert (second.key, orjson.loads(second.value), second.type) == ("a/2", child, "child")
    assert (second.tenant, second.lane, second.max_attempts) == ("acme", Lane.URGENT, 2)


def test_a_follow_up_takes_tenant_lane_and_routes_from_its_parent() -> None:
    """A tenant's limits, and the routes that a task may take, hold for what it orders too."""
    task = IN_EU
    inherited = Inherited(depth=2, tenant="acme", lane=Lane.BULK)

    own, taken = ordered(
        LINE | {"tenant": "other", "priority": 5, "routes_allowed": ["us"]},
        LINE | {"id": "a/2"},
        task=task,
        inherited=inherited,
    )

    assert (taken.tenant, taken.lane) == ("acme", Lane.BULK)
    assert orjson.loads(taken.value)["tenant"] == "acme"
    assert orjson.loads(taken.value)["routes_allowed"] == ["eu"]
    assert (own.tenant, own.lane) == ("other", Lane.NORMAL)
    assert orjson.loads(own.value)["routes_allowed"] == ["us"]


@pytest.mark.parametrize(
    ("line", "parent_line", "of_batch", "refused"),
    [
        (LINE | {"route": "eu"}, IN_EU, None, ""),
        (LINE, IN_EU, None, "(eu) contain neither default nor a fallback of it"),
        (LINE | {"routes_allowed": ["default"]}, IN_EU, ("eu",), ""),
        (LINE | {"route": "eu"}, TASK, ("default",), "(default) contain neither eu"),
        (LINE | {"route": "typo"}, TASK, None, "route typo"),
    ],
)
def test_a_follow_up_that_could_take_no_route_is_refused(
    line: dict[str, Any],
    parent_line: dict[str, Any],
    of_batch: tuple[str, ...] | None,
    refused: str,
) -> None:
    """It would wait until the settings change. Its own bounds come before those of its batch."""

    async def parent(context: Context) -> None:
        await context.follow(line)

    llm = LLMConfig(base_url="http://h/v1", model="m")
    names = RouteNames(Config(llm=llm, routes={"eu": RouteConfig(model="n")}))
    harness = handlers_harness(
        types=TYPES, route_refusal=partial(route_refusal, names), parent=parent
    )
    outcome = harness.run(parent_line, inherited=Inherited(routes_allowed=of_batch))

    if refused:
        assert refused in failure_of(outcome).text
        assert "name a route that it may take" in failure_of(outcome).text
    else:
        assert isinstance(outcome, Succeeded)


def test_a_line_of_openai_s_format_is_taken_as_it_is() -> None:
    """Such a line has no field for a tenant, so the row alone has its parent's."""
    body = {"messages": [{"role": "user", "content": "hi"}]}
    line = {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": body}

    (follow_up,) = ordered(line, inherited=Inherited(tenant="acme"))

    assert (orjson.loads(follow_up.value), follow_up.tenant) == (line, "acme")
    assert "routes_allowed" in refusal(line, task=IN_EU)


def test_a_bad_line_fails_the_attempt_with_field_and_fix() -> None:
    """A bad line is the handler's own failure: it counts, and may be better next time."""

    async def parent(context: Context) -> None:
        await context.follow({"id": "a/1", "promt": "Summarize."})

    failure = failure_of(handlers_harness(types=TYPES, parent=parent).run(TASK))

    assert failure.error_class == ErrorClass.HANDLER
    assert failure.text == (
        "FollowUpError: the follow-up 'a/1' is no task: its promt is not a known field; "
        "did you mean prompt?"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a/1", "a follow-up is a dict"),
        ({"prompt": "Summarize."}, "the follow-up is no task: its id is missing"),
        ({"id": "a/1"}, "its prompt is missing"),
        (LINE | {"type": "chidl"}, "has the unknown type 'chidl'; did you mean child?"),
        (LINE | {"id": "a"}, "has the id of its parent"),
        (LINE | {"metadata": {"day": object()}}, "cannot be written as JSON"),
        (LINE | {"schema": {"type": "nothing"}}, "its schema"),
    ],
)
def test_a_line_that_is_no_task_is_refused(line: Any, reason: str) -> None:
    """The text names the follow-up, and says what to do."""
    assert reason in refusal(line)


def test_a_follow_up_may_not_ask_for_more_time_than_its_type_has() -> None:
    """It is refused as a load refuses it; otherwise it would have less time without a word."""
    longer = LINE | {"type": "child", "time_limit_s": 61}

    assert refusal(longer) == (
        "the follow-up 'a/1' is no task: its time_limit_s is 61, and an attempt of type child has "
        "60 s at most; write a smaller number, or a larger time_limit_s into [types.child]"
    )
    assert len(ordered(longer | {"time_limit_s": 60})) == 1


def test_the_same_line_again_changes_nothing_and_another_one_is_refused() -> None:
    """An id stands for one content."""
    assert len(ordered(LINE, LINE)) == 1
    assert "already with other content" in refusal(LINE, LINE | {"prompt": "Translate."})


def test_number_size_and_depth_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All follow-ups of a task are written in one transaction, and no chain goes on for ever."""
    monkeypatch.setattr(limits, "MAX_FOLLOW_UPS", 2)
    monkeypatch.setattr(limits, "MAX_BYTES", 200)
    many = [LINE | {"id": f"a/{number}"} for number in range(3)]
    assert "one more than the 2" in refusal(*many)
    assert "longer than 200 bytes" in refusal(LINE, LINE | {"id": "b", "prompt": "x" * 180})
    assert "would have 11 ancestors" in refusal(LINE, inherited=Inherited(depth=10))
    assert len(ordered(LINE, inherited=Inherited(depth=9))) == 1


def test_a_line_with_a_number_that_json_cannot_hold_is_refused() -> None:
    """Its task would be made with null in the number's place."""
    reason = refusal(LINE | {"params": {"temperature": float("nan")}})

    assert "line['params']['temperature'] is nan" in reason


# ---- joins


def joining(*orders: tuple[dict[str, Any], dict[str, Any]]) -> tuple[FollowUp, ...] | str:
    """Return what a handler orders with these lines and rules, or why it may not."""

    async def parent(context: Context) -> str:
        try:
            for line, rules in orders:
                await context.follow(line, **rules)
        except FollowUpError as error:
            return str(error)
        return "done"

    outcome = succeeded(handlers_harness(types=TYPES, parent=parent).run(TASK))
    answer = orjson.loads(outcome.body)
    return outcome.follow_ups if answer == "done" else str(answer)


def test_joins_are_ordered_last() -> None:
    """So they get the highest numbers, whenever the handler orders them."""
    join = LINE | {"id": "a/all"}

    made = joining(
        (join, {"after": "children", "on_dead_child": "run"}),
        (LINE, {}),
        (join, {"after": "children", "on_dead_child": "run"}),
    )

    assert not isinstance(made, str)
    assert [(order.key, order.join_role) for order in made] == [
        ("a/1", JoinRole.NONE),
        ("a/all", JoinRole.RUN),
    ]


@pytest.mark.parametrize(
    ("line", "rules", "reason"),
    [
        (LINE, {"after": "all"}, "after='all'; write after=\"children\""),
        (LINE, {"after": "children", "on_dead_child": "stop"}, "write one of: wait, run, die"),
        (LINE | {"not_before": "2030-01-01T00:00:00Z"}, {"after": "children"}, "no not_before"),
    ],
)
def test_a_join_that_cannot_be(line: dict[str, Any], rules: dict[str, Any], reason: str) -> None:
    """It is refused at once, with what to write."""
    refused = joining((line, rules))

    assert isinstance(refused, str)
    assert "a/1" in refused
    assert reason in refused


def test_a_follow_up_is_either_a_join_or_not() -> None:
    """The same line ordered in two ways is a mistake."""
    refused = joining((LINE, {}), (LINE, {"after": "children"}))

    assert isinstance(refused, str)
    assert "was ordered already with other content" in refused
