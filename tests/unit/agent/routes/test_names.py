"""The name of a task's route, and the route of a record."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes import DEFAULT, RouteNames
from docllm.agent.routes.names import plan_of_body, preview
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, TypeConfig
from docllm.schemas.task.record.hints import hints_of
from tests.unit.agent.routes.test_router import CONFIG

NAMES = RouteNames(CONFIG)


@pytest.mark.parametrize(
    ("type_name", "model", "route"),
    [
        ("document", None, DEFAULT),
        ("document", "", DEFAULT),
        ("note", None, DEFAULT),
        ("scan", None, "vision-1"),
        ("scan", "fast-8b", "copy"),
        ("document", "vision-1", "vision-1"),
        ("document", "mini", DEFAULT),
        ("document", "other/model", "other/model"),
    ],
)
def test_a_task_belongs_to_the_route_of_its_model(
    type_name: str, model: str | None, route: str
) -> None:
    """A task belongs to the route of its model, else of its type, else to the default route.

    A model that nobody configured has a route of its own.
    """
    assert NAMES.name_of(type_name, model) == route


@pytest.mark.parametrize(
    "model", ["m" * 65, "m ", " m", " ", "m\n2026 ERROR all is lost", "fast", DEFAULT, "é" * 191]
)
def test_a_name_fits_the_ledger_and_takes_no_others_place(model: str) -> None:
    """Long, unprintable or taken names get a name with a hash; the model is remembered."""
    name = NAMES.name_of("document", model)

    assert len(name) <= 64
    assert name.isprintable()
    assert name == name.strip()
    assert name not in {*CONFIG.routes, DEFAULT}
    assert (
        name == NAMES.name_of("document", model),
        name == NAMES.name_of("document", f"{model}2"),
    ) == (True, False)
    assert NAMES.model_of(name) == model


def test_the_model_of_a_type_counts_as_if_its_tasks_named_it() -> None:
    """A task that names no model goes to the route of its type's model, with that model."""
    names = RouteNames(replace(CONFIG, types={"scan": TypeConfig(model="fast-8b")}))
    own = RouteNames(replace(CONFIG, types={"scan": TypeConfig(model="other/model")}))

    assert names.name_of("scan", None) == names.name_of("document", "fast-8b")
    assert names.name_of("scan", "mini") == DEFAULT
    assert own.model_of(own.name_of("scan", None)) == "other/model"


def test_a_route_knows_its_model() -> None:
    """A route knows its model: the configured one, or its own name, or the default model."""
    assert [NAMES.model_of(name) for name in (DEFAULT, "fast", "vision-1", "other")] == [
        "mini",
        "fast-8b",
        "vision-1",
        "other",
    ]
    assert RouteNames(Config()).model_of(DEFAULT) is None


def test_the_default_route_can_be_configured() -> None:
    """Tasks that name the default route's model, or none, belong to it."""
    names = RouteNames(
        Config(llm=LLMConfig(model="mini"), routes={DEFAULT: RouteConfig(model="large")})
    )

    assert [names.name_of("document", model) for model in (None, "large", "mini")] == [
        DEFAULT,
        DEFAULT,
        "mini",
    ]
    assert names.model_of(DEFAULT) == "large"


def test_names_that_were_shortened_are_not_remembered_for_ever() -> None:
    """Shortened names are forgotten, so a million models do not fill the memory."""
    names = RouteNames(Config())
    for number in range(1500):
        names.name_of("document", f"{number}" * 65)

    assert len(names._models) == 1000


@pytest.mark.parametrize(
    ("line", "route"),
    [
        ({"id": "a", "prompt": "p"}, DEFAULT),
        ({"id": "a", "prompt": "p", "model": "fast-8b"}, "copy"),
        ({"id": "a", "prompt": "p", "type": "scan"}, "vision-1"),
        (
            {
                "custom_id": "a",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": "other"},
            },
            "other",
        ),
        ({"custom_id": "a", "body": {"messages": []}}, DEFAULT),
        ({"custom_id": "a", "body": [], "model": "other"}, DEFAULT),
        ({"id": "a", "model": 5, "type": ["scan"]}, DEFAULT),
    ],
)
def test_a_record_tells_its_route(line: dict[str, object], route: str) -> None:
    """The hints of a line give its task's route, in either format."""
    assert preview(hints_of(line), 0, NAMES)[0].first == route
    assert plan_of_body(orjson.dumps(line), NAMES).first == route


def test_no_value_no_route() -> None:
    """A task without a readable body belongs to the default route."""
    assert [plan_of_body(value, NAMES).first for value in (b"", b"[1]", b"\xff", b"{" * 3000)] == [
        DEFAULT
    ] * 4


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (
            {"id": "a", "type": "note", "tenant": "acme", "params": {"max_tokens": 9}},
            CallSize(task_type="note", most_out=9),
        ),
        (
            {"id": "a", "input": {"uri": "file:///a.pdf", "size": 5000}},
            CallSize(input_bytes=5000, by_uri=True),
        ),
        (
            {"custom_id": "a", "body": {"model": "m", "max_completion_tokens": 7, "n": 2}},
            CallSize(task_type="openai", most_out=14),
        ),
        ({"id": "a", "type": 1, "tenant": {}, "input": [], "params": 3}, CallSize()),
    ],
)
def test_a_record_tells_the_size_of_its_call(line: dict[str, object], size: CallSize) -> None:
    """The input is what the record has, and the document of which it names the size."""
    size = replace(size, input_bytes=size.input_bytes + 100)

    assert preview(hints_of(line), 100, NAMES)[1] == size


FIELDS = st.sampled_from(
    ["input", "params", "size", "max_tokens", "type", "model", "body", "custom_id"]
)
DOCUMENTS = st.recursive(
    st.none() | st.text() | st.integers(0, 9), lambda inner: st.dictionaries(FIELDS, inner)
)


@given(st.binary() | DOCUMENTS.map(orjson.dumps))
def test_no_value_breaks_the_reading(value: bytes) -> None:
    """Any value of a record gives a route that fits the ledger."""
    name = plan_of_body(value, NAMES).first

    assert 1 <= len(name) <= 64
    assert name.isprintable()


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [({}, 5000), ({"model": "gpt-4o"}, 128_000), ({"model": "mine"}, 8192), ({"route": "r"}, 9000)],
)
def test_the_first_call_for_a_long_document_has_one_part_of_it(
    fields: dict[str, object], tokens: int
) -> None:
    """Limits of tokens leave room for what the model takes, and not for the whole document."""
    llm = LLMConfig(base_url="http://h", model="mini", context_tokens=5000)
    names = RouteNames(Config(llm=llm, routes={"r": RouteConfig(context_tokens=9000)}))
    source = {"uri": "file:///a", "size": 10_000_000}
    line = {"id": "a", "type": "map-reduce", "input": source} | fields

    assert preview(hints_of(line), 100, names)[1].input_bytes == 4 * tokens
    small = line | {"input": {"text": "x"}}
    assert preview(hints_of(small), 100, names)[1].input_bytes == 100
