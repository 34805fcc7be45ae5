"""Refuses tasks that name a route that nobody configured, or that may take no route.

Such a task would wait in every agent.
"""

import difflib

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.account import configured_route, configured_routes
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.fallback import chain
from docllm.schemas.task.line.parsing import TaskLine


class KnownRoutes:
    """The routes that a load takes. `allowed` bounds the lines that set no bounds of their own.

    Raises ConfigError if `allowed` names a route that is not configured.
    """

    def __init__(self, *, config: Config, allowed: tuple[str, ...] | None = None) -> None:
        self._config = config
        self._names = configured_routes(config)
        self._allowed = allowed
        for name in allowed or ():
            if name not in self._names:
                raise ConfigError(f"--routes-allowed: {name!r} is no route; {self._fix(name)}")

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task that could take no route becomes a bad line."""
        task = line.task
        named = [("route", task.route or ""), *(("routes_allowed", name) for name in _of(task))]
        for field, name in named:
            if name and name not in self._names:
                return line.refused(field, f"names {name!r}, which is no route", self._fix(name))
        allowed = self._allowed if task.routes_allowed is None else task.routes_allowed
        if allowed is None or self._may_run(line, allowed):
            return line
        field = "routes_allowed" if task.routes_allowed is not None else ""
        return line.refused(
            field,
            f"has neither {self._own_route(line)} nor a fallback of it in {', '.join(allowed)}",
            "name an allowed route as the task's `route`, or allow its own one",
        )

    def _may_run(self, line: ValidLine, allowed: tuple[str, ...]) -> bool:
        task = line.task
        route = configured_route(self._config, task.type, task.model, task.route)
        if route is None:
            return False
        routes = route, *(step.route for step in chain(self._config, route))
        return any(name in allowed for name in routes)

    def _own_route(self, line: ValidLine) -> str:
        task = line.task
        route = configured_route(self._config, task.type, task.model, task.route)
        return f"the route {route}" if route else f"a route for the model {task.model}"

    def _fix(self, name: str) -> str:
        nearest = difflib.get_close_matches(name, self._names, 1)
        guess = (
            f"did you mean {nearest[0]}?" if nearest else f"known are: {', '.join(self._names)};"
        )
        return f"{guess} a route needs [routes.NAME] in the settings of load and of the agents"


def _of(task: TaskLine) -> tuple[str, ...]:
    return task.routes_allowed or ()
