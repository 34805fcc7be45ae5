"""The router: routes fail apart, and their number is limited."""

from dataclasses import replace

from docllm.agent.routes import DEFAULT, Router
from docllm.agent.routes.router import MAX_ROUTES
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Secret, TypeConfig
from tests.support.routes import GOOD, call, failed, notice, paused, permitted, routes, snoozed

CONFIG = Config(
    llm=LLMConfig(model="mini"),
    routes={
        "fast": RouteConfig(model="fast-8b"),
        "vision-1": RouteConfig(timeout_s=5.0),
        "copy": RouteConfig(model="fast-8b"),
    },
    types={"scan": TypeConfig(route="vision-1"), "note": TypeConfig()},
)


def test_routes_fail_apart() -> None:
    """Routes fail separately: one that stops, or asks for time, delays no other."""
    router = routes(slots=3)
    for _ in range(3):
        call(router, failed(), 100.0, name="bad")
    paused(router, snoozed("RATE"), 100.0, name="slow")

    assert [router.room(name, 100.0, 0, 3) for name in ("bad", "slow", "good", "new")] == [
        0,
        0,
        3,
        3,
    ]
    assert (
        notice(router, 100.0)
        == "route bad waits 2 s: SERVER: 503: away; route slow waits 2 s: RATE: said the provider"
    )


def test_many_routes_are_summed_up() -> None:
    """A screen shows at most five routes."""
    router = routes()
    for number in range(8):
        paused(router, snoozed("RATE"), 100.0, name=f"m{number}")

    assert notice(router, 100.0).count("route m") == 5
    assert notice(router, 100.0).endswith("; 3 more routes wait")


def test_the_table_is_bounded() -> None:
    """Of a million models, idle healthy routes are forgotten first; those in use never."""
    router = routes(slots=3)
    for _ in range(3):
        call(router, failed(), 100.0, name="stopped")
    busy = [permitted(router, 100.0, name=f"busy{number}") for number in range(50)]
    for number in range(3 * MAX_ROUTES):
        call(router, GOOD, 100.0, name=f"m{number}")

    assert len(list(router)) == MAX_ROUTES
    assert {"stopped", *(permit.route for permit in busy)} <= {route.name for route in router}
    for permit in busy:
        router.ended(permit, GOOD, 101.0)


def test_the_table_is_bounded_by_stopped_routes_too() -> None:
    """If all routes are stopped, the one that was idle longest is forgotten."""
    router = routes(slots=1)
    for number in range(MAX_ROUTES + 10):
        for _ in range(3):
            call(router, failed(), 100.0, name=f"m{number}")

    assert len(list(router)) == MAX_ROUTES
    assert not router.closed("m0", 100.0)
    assert router.closed(f"m{MAX_ROUTES}", 100.0)


def test_a_route_has_its_own_limit() -> None:
    """A route's calls may take its own time limit, or else the common one."""
    router = Router(config=CONFIG, group="g", jitter=lambda: 0.5)

    assert [router.timeout_s(name) for name in (DEFAULT, "vision-1", "other")] == [
        600.0,
        5.0,
        600.0,
    ]


# ---- settings that are read again


def parked(router: Router, *names: str) -> None:
    for name in names:
        for _ in range(3):
            call(router, snoozed("AUTH"), 100.0, name=name)
    assert all(router.closed(name, 100.0) for name in names)


def test_a_corrected_key_opens_its_route_and_no_other() -> None:
    """Models that nobody configured are called with the account of the default route."""
    router = Router(config=CONFIG, group="g", jitter=lambda: 0.5)
    parked(router, "fast", "vision-1", "other/model")
    own = CONFIG.routes | {"fast": RouteConfig(model="fast-8b", api_key=Secret("right"))}

    assert router.apply(replace(CONFIG, routes=own), 101.0) == ["fast"]
    assert [router.closed(name, 101.0) for name in ("fast", "vision-1")] == [False, True]
    parked(router, "fast")
    of_llm = replace(CONFIG, routes=own, llm=replace(CONFIG.llm, api_key=Secret("right")))

    assert sorted(router.apply(of_llm, 102.0)) == ["other/model", "vision-1"]
    assert router.closed("fast", 102.0)


def test_new_routes_and_limits_are_used() -> None:
    """A new route takes the tasks of its model; a changed time limit holds for the next probe."""
    router = Router(config=CONFIG, group="g", jitter=lambda: 0.5)
    routes = CONFIG.routes | {"large": RouteConfig(), "fast": RouteConfig(timeout_s=7.0)}

    assert router.apply(replace(CONFIG, routes=routes), 100.0) == []

    assert "large" in {route.name for route in router}
    assert router.naming.name_of("document", "large") == "large"
    assert router.timeout_s("fast") == 7.0
    assert next(route for route in router if route.name == "fast").probes.timeout_s == 7.0
