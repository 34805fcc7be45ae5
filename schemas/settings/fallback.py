"""The chain of routes to which a task may go on, and the faults of such chains. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from docllm.schemas.settings.config import DEFAULT_ROUTE, Config, RouteConfig, Trigger


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """A route of a chain, and the failures for which a task comes to it.

    These are `fallback_on` of the route that lists it as a fallback.
    """

    route: str
    triggers: frozenset[Trigger]


def chain(config: Config, route: str) -> tuple[FallbackStep, ...]:
    """Return the routes to which the tasks of a route may go on, in order, without the route.

    A fallback is followed by its own fallbacks. A route that is reached twice stands where it is
    reached first. The configuration must be free of `fallback_faults`.
    """
    steps: dict[str, FallbackStep] = {}
    _follow(config, route, steps)
    return tuple(steps.values())


def fallback_faults(config: Config) -> Iterator[str]:
    """Yield the faults of fallbacks: routes that do not exist, and chains that never end."""
    known = sorted({DEFAULT_ROUTE, *config.routes})
    for name, settings in sorted(config.routes.items()):
        for number, other in enumerate(settings.fallback, 1):
            if other not in known:
                yield (
                    f"routes.{name}.fallback: name {number} is no route; "
                    f"known are: {', '.join(known)}"
                )
    for cycle in _cycles(config):
        yield (
            f"routes.{cycle[0]}.fallback leads back to itself: {' -> '.join(cycle)}; "
            "remove one of these routes from the fallback of the one before it"
        )


def _follow(config: Config, route: str, steps: dict[str, FallbackStep]) -> None:
    settings = config.routes.get(route, RouteConfig())
    triggers = frozenset(settings.fallback_on)
    for name in settings.fallback:
        if name not in steps:
            steps[name] = FallbackStep(name, triggers)
            _follow(config, name, steps)


def _cycles(config: Config) -> Iterator[tuple[str, ...]]:
    """Yield each cycle of fallbacks once, from the first of its routes by name."""
    for start in sorted(config.routes):
        reached: list[tuple[str, ...]] = [(start,)]
        seen = {start}
        while reached:
            path = reached.pop(0)
            for name in config.routes.get(path[-1], RouteConfig()).fallback:
                if name == start:
                    yield *path, start
                    reached = []
                    break
                if name > start and name not in seen:
                    seen.add(name)
                    reached.append((*path, name))
