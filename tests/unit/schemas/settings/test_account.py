"""The configured route of a task, and what a route inherits from `[llm]`."""

import pytest

from docllm.schemas.settings.account import account, configured_route, configured_routes
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Structured, TypeConfig

CONFIG = Config(
    llm=LLMConfig(base_url="http://main/v1", model="mini", context_tokens=8_000),
    routes={
        "mini": RouteConfig(timeout_s=5.0),
        "large": RouteConfig(context_tokens=128_000),
        "other": RouteConfig(),
        "elsewhere": RouteConfig(base_url="http://local/v1", model="mini"),
    },
)


@pytest.mark.parametrize(
    ("route", "context_tokens"),
    [("default", 8_000), ("mini", 8_000), ("large", 128_000), ("other", None), ("elsewhere", None)],
)
def test_the_size_of_a_context_holds_for_its_model_alone(
    route: str, context_tokens: int | None
) -> None:
    """Another model takes more or less, and another server may run the same model with less."""
    assert account(CONFIG, route).context_tokens == context_tokens


def test_the_form_of_a_schema_belongs_to_the_server() -> None:
    """A route at another address starts from the default form."""
    config = Config(
        llm=LLMConfig(base_url="http://main/v1", structured=Structured.NONE),
        routes={
            "same": RouteConfig(),
            "own": RouteConfig(structured=Structured.JSON_OBJECT),
            "elsewhere": RouteConfig(base_url="http://local/v1"),
        },
    )

    forms = {name: account(config, name).structured for name in ("default", *config.routes)}

    assert forms == {
        "default": "none",
        "same": "none",
        "own": "json_object",
        "elsewhere": "json_schema",
    }


ROUTES = Config(
    llm=LLMConfig(model="mini"),
    routes={
        "b": RouteConfig(model="large"),
        "a": RouteConfig(model="large"),
        "c": RouteConfig(base_url="http://c/v1"),
        "default": RouteConfig(timeout_s=5.0),
    },
    types={"scan": TypeConfig(route="b"), "note": TypeConfig(), "big": TypeConfig(model="large")},
)


def test_the_default_route_is_the_last_of_all() -> None:
    """The default route is a route also without a section."""
    assert configured_routes(ROUTES) == ("a", "b", "c", "default")
    assert configured_routes(Config()) == ("default",)


@pytest.mark.parametrize(
    ("type_name", "model", "route", "chosen"),
    [
        ("document", None, None, "default"),
        ("note", None, None, "default"),
        ("scan", None, None, "b"),
        ("scan", "large", None, "a"),
        ("big", None, None, "a"),
        ("big", "mini", None, "default"),
        ("big", None, "b", "b"),
        ("scan", "c", None, "c"),
        ("document", "mini", None, "default"),
        ("document", "other", None, None),
        ("scan", "large", "c", "c"),
        ("document", None, "d", None),
    ],
)
def test_the_route_of_a_task(
    type_name: str, model: str | None, route: str | None, chosen: str | None
) -> None:
    """A named route comes before that of the model, and this one before that of the type."""
    assert configured_route(ROUTES, type_name, model, route) == chosen
