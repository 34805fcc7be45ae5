"""The configured route of a task."""

import pytest

from docllm.schemas.settings.account import configured_route, configured_routes
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, TypeConfig

CONFIG = Config(
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
    assert configured_routes(CONFIG) == ("a", "b", "c", "default")
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
    assert configured_route(CONFIG, type_name, model, route) == chosen
