"""Lines whose task could take no route are refused before they are loaded."""

from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.known_routes import KnownRoutes
from docllm.producer.input.refusals.line_checks import checked
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import Config, RouteConfig

CONFIG = Config(
    routes={
        "fast": RouteConfig(fallback=("other",)),
        "other": RouteConfig(model="large"),
        "third": RouteConfig(),
    }
)


def check(allowed: tuple[str, ...] | None = None, **fields: Any) -> ValidLine | InvalidLine:
    """Return a line with these fields as the check leaves it."""
    line = read_line(3, orjson.dumps({"id": "a", "prompt": "p"} | fields))
    assert isinstance(line, ValidLine)
    routes = KnownRoutes(config=CONFIG, allowed=allowed)
    (result,) = checked([line], [routes.check])
    return result


@pytest.mark.parametrize(
    ("allowed", "fields"),
    [
        (None, {}),
        (None, {"route": "fast"}),
        (None, {"route": "fast", "routes_allowed": ["other"]}),
        (None, {"routes_allowed": ["default"]}),
        (("third",), {"routes_allowed": ["default"]}),
        (("default", "other"), {"model": "large"}),
        (("fast",), {"model": "fast"}),
    ],
)
def test_a_task_that_may_take_a_route_is_loaded(
    allowed: tuple[str, ...] | None, fields: dict[str, Any]
) -> None:
    """The task's own route or one of its fallbacks is allowed."""
    assert isinstance(check(allowed, **fields), ValidLine)


@pytest.mark.parametrize(
    ("allowed", "fields", "field", "words"),
    [
        (None, {"route": "fats"}, "route", "names 'fats', which is no route; did you mean fast?"),
        (None, {"route": "zz"}, "route", "known are: fast, other, third, default; a route needs"),
        (None, {"routes_allowed": ["fast", "zz"]}, "routes_allowed", "names 'zz'"),
        (
            None,
            {"route": "other", "routes_allowed": ["fast", "third"]},
            "routes_allowed",
            "has neither the route other nor a fallback of it in fast, third",
        ),
        (("fast",), {}, "", "has neither the route default nor a fallback of it in fast"),
        (("fast",), {"model": "zz"}, "", "has neither a route for the model zz nor"),
    ],
)
def test_a_task_that_may_take_no_route_is_a_bad_line(
    allowed: tuple[str, ...] | None, fields: dict[str, Any], field: str, words: str
) -> None:
    """The error names line and field, and says what to do."""
    line = check(allowed, **fields)

    assert isinstance(line, InvalidLine)
    assert (line.line, line.field) == (3, field)
    assert words in str(line)


def test_an_option_that_names_no_route_ends_the_load() -> None:
    """A misspelt route would leave the tasks without one."""
    with pytest.raises(
        ConfigError, match="--routes-allowed: 'fats' is no route; did you mean fast"
    ):
        KnownRoutes(config=CONFIG, allowed=("other", "fats"))
