"""Chains of fallbacks: their order, their triggers, and the faults that end a program."""

from pathlib import Path

import pytest

from docllm.schemas.settings.config import Config, RouteConfig, Trigger
from docllm.schemas.settings.fallback import FallbackStep, chain
from tests.support.settings import fault, load

DEFAULTS = frozenset({Trigger.OUTAGE, Trigger.CAPACITY, Trigger.TOO_LONG})


def test_a_route_without_fallback_has_no_chain() -> None:
    """Neither a configured route nor one that only a task names has a chain by itself."""
    assert chain(Config(routes={"a": RouteConfig()}), "a") == ()
    assert chain(Config(), "any model") == ()


def test_each_fallback_is_followed_by_its_own_ones(tmp_path: Path) -> None:
    """The failures for which a task comes to a route are those of the route that lists it."""
    config = load(
        tmp_path,
        """
        [routes.a]
        fallback = ["b", "d"]
        fallback_on = ["OUTAGE", "MONEY", "OUTAGE"]
        [routes.b]
        fallback = ["c", "d"]
        [routes.c]
        model = "m"
        [routes.d]
        model = "n"
        """,
    )

    assert chain(config, "a") == (
        FallbackStep("b", frozenset({Trigger.OUTAGE, Trigger.MONEY})),
        FallbackStep("c", DEFAULTS),
        FallbackStep("d", DEFAULTS),
    )


def test_the_default_route_may_begin_and_end_a_chain(tmp_path: Path) -> None:
    """`default` is a route even without a section."""
    assert [step.route for step in chain(load(tmp_path, FROM_DEFAULT), "default")] == ["a"]
    assert [step.route for step in chain(load(tmp_path, TO_DEFAULT), "a")] == ["default"]


FROM_DEFAULT = "[routes.default]\nfallback = 'a'\n[routes.a]\nmodel = 'm'"
TO_DEFAULT = "[routes.a]\nfallback = ['default']\n"


def test_many_routes_that_share_their_fallbacks_make_one_short_chain() -> None:
    """The work does not double with each route."""
    routes = {
        str(number): RouteConfig(fallback=(str(number + 1), str(number + 2)))
        for number in range(60)
    }
    routes |= {"60": RouteConfig(), "61": RouteConfig()}

    assert len(chain(Config(routes=routes), "0")) == 61


@pytest.mark.parametrize(
    ("toml", "path"),
    [
        ("[routes.a]\nfallback = ['a']", "a -> a"),
        ("[routes.b]\nfallback = ['a']\n[routes.a]\nfallback = ['b']", "a -> b -> a"),
        (
            "[routes.b]\nfallback = ['c']\n[routes.c]\nfallback = ['default', 'b']",
            "b -> c -> b",
        ),
        (
            "[routes.default]\nfallback = ['a']\n[routes.a]\nfallback = ['default']",
            "a -> default -> a",
        ),
    ],
)
def test_a_chain_that_leads_back_to_itself_is_refused_and_shown(
    tmp_path: Path, toml: str, path: str
) -> None:
    """The error names every route of the cycle, and there is one error for each cycle."""
    assert fault(tmp_path, toml) == (
        f"routes.{path[: path.index(' ')]}.fallback leads back to itself: {path}; "
        "remove one of these routes from the fallback of the one before it"
    )


def test_a_fallback_that_is_no_route_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """A fallback is the name of a route, not of a model."""
    assert fault(tmp_path, "[routes.a]\nfallback = ['default', 'gpt']") == (
        "routes.a.fallback: name 2 is no route; known are: a, default"
    )


@pytest.mark.parametrize("value", ["['OUTAGE', 'RATE']", "3", "'outage'"])
def test_a_trigger_that_does_not_exist_is_refused_with_those_that_do(
    tmp_path: Path, value: str
) -> None:
    """The names are those of the classes of failures, in capitals."""
    text = fault(tmp_path, f"[routes.a]\nfallback = ['default']\nfallback_on = {value}")

    assert "routes.a.fallback_on is wrong; write a list of " in text
