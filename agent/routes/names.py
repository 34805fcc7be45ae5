"""Names the routes of a task from its hints or its line, and previews the size of its call.

Pure.

Nothing here trusts what a task says.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes.plan import RoutePlan
from docllm.schemas.settings.account import account, configured_routes
from docllm.schemas.settings.config import BYTES_PER_TOKEN, DEFAULT_ROUTE, Config
from docllm.schemas.settings.fallback import chain
from docllm.schemas.settings.known_models import UNKNOWN_TOKENS, known_tokens
from docllm.schemas.task.record.hints import Hints, hints_of, read_body
from docllm.schemas.task.route_state import MAX_ROUTE_CHARS
from docllm.schemas.task.task_types import MAP_REDUCE

DEFAULT = DEFAULT_ROUTE
_DIGEST_BYTES = 8
_REMEMBERED = 1000


class RouteNames:
    """The names of routes.

    `[routes.NAME]` and `default` are `configured`. Every other model that a task names has a route
    of its own.
    """

    def __init__(self, config: Config) -> None:
        self._models: OrderedDict[str, str] = OrderedDict()
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Apply changed settings; the route names of unconfigured models stay the same."""
        self._config = config
        self._by_model: dict[str, str] = {}
        self.configured = configured_routes(config)
        self._plans = {name: RoutePlan(name, chain(config, name)) for name in self.configured}
        self._plans_with = {name: self._all_with(name) for name in self.configured}
        for name in self.configured:
            if model := self.model_of(name):
                self._by_model.setdefault(model, name)

    def name_of(self, type_name: str, model: str | None) -> str:
        """Return the route of a task."""
        if not model:
            task_type = self._config.type_settings(type_name)
            if not task_type.model:
                return task_type.route or DEFAULT
            model = task_type.model
        return self._by_model.get(model) or self._name_of_model(model)

    def plan(
        self,
        type_name: str,
        model: str | None,
        route: str | None = None,
        allowed: tuple[str, ...] | None = None,
    ) -> RoutePlan:
        """Return the routes that a task may take.

        A route that it names comes before the route of its model.
        """
        if route is not None and route not in self._plans:
            return RoutePlan(_fitting(route), known=False)
        return self.plan_of_route(route or self.name_of(type_name, model)).within(allowed)

    def renewed(self, plan: RoutePlan) -> RoutePlan:
        """Return the plan of a task by the present settings, with its own route and its bounds."""
        known = plan.known or plan.route in self._plans
        return replace(plan, steps=self.plan_of_route(plan.route).steps, known=known)

    def plan_of_route(self, name: str) -> RoutePlan:
        """Return the plan of a task that begins on this route."""
        return self._plans.get(name) or RoutePlan(name)

    def plans_with(self, name: str) -> tuple[RoutePlan, ...]:
        """Return the plans of all tasks that may wait for this route.

        The first is that of tasks that begin there.
        """
        return self._plans_with.get(name) or (RoutePlan(name),)

    def _all_with(self, name: str) -> tuple[RoutePlan, ...]:
        others = (plan for plan in self._plans.values() if plan.route != name)
        return (self._plans[name], *(plan for plan in others if name in plan))

    def model_of(self, route: str) -> str | None:
        """Return a route's model for tasks that name none; None lets the provider choose."""
        settings = self._config.routes.get(route)
        if settings is not None and settings.model is not None:
            return settings.model
        if route == DEFAULT:
            return self._config.llm.model
        return self._models.get(route, route)

    def context_tokens(self, route: str, model: str | None) -> int:
        """Return how many tokens the model of a call on a route takes, as far as it is known."""
        settings = account(self._config, route if route in self.configured else DEFAULT)
        is_own = route in self.configured and model in {None, settings.model}
        own = settings.context_tokens if is_own else None
        name = model or (self.model_of(route) or "")
        return own or known_tokens(name) or UNKNOWN_TOKENS

    def _name_of_model(self, model: str) -> str:
        """Return the route name of a model that nobody configured.

        The name fits the ledger and a log line. It differs from the names of all configured routes
        and other models, even for MariaDB, which ignores trailing blanks when it compares.
        """
        if _fits(model) and model not in self.configured:
            return model
        name = _shortened(model)
        self._models[name] = model
        self._models.move_to_end(name)
        if len(self._models) > _REMEMBERED:
            self._models.popitem(last=False)
        return name


def preview(hints: Hints, length: int, names: RouteNames) -> tuple[RoutePlan, CallSize]:
    """Return the routes that a task's hints name, and the size of its first call.

    `length` is that of its body in bytes.
    """
    plan = names.plan(hints.task_type, hints.model, hints.route or None)
    input_bytes = length + (hints.document_bytes or 0)
    if hints.task_type == MAP_REDUCE:  # its first call has one part of the document
        context_tokens = names.context_tokens(plan.first, hints.model or None)
        input_bytes = min(input_bytes, context_tokens * BYTES_PER_TOKEN)
    size = CallSize(
        task_type=hints.task_type,
        input_bytes=input_bytes,
        most_out=hints.most_out,
        by_uri=hints.document_bytes is not None,
    )
    return plan, size


def plan_of_body(value: bytes, names: RouteNames) -> RoutePlan:
    """Return the routes of a task by its body; the default ones if the body cannot be read."""
    line = read_body(value)
    if line is None:
        return names.plan_of_route(DEFAULT)
    plan, _ = preview(hints_of(line), len(value), names)
    return plan.within(routes_allowed(line))


def routes_allowed(line: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the bounds that a line sets to its task's routes, None if it sets none."""
    allowed = line.get("routes_allowed")
    if not isinstance(allowed, list):
        return None
    return tuple(name for name in allowed if isinstance(name, str))


def route_refusal(names: RouteNames, value: bytes, allowed: tuple[str, ...] | None) -> str:
    """Return why a task line may take no route within its batch's bounds; "" if it may take one."""
    return plan_of_body(value, names).within_batch(allowed).refusal


def _fitting(name: str) -> str:
    """Return a name in a form that fits the ledger's column and one log line."""
    return name if _fits(name) else _shortened(name)


def _fits(name: str) -> bool:
    return len(name) <= MAX_ROUTE_CHARS and name.isprintable() and name == name.strip()


def _shortened(name: str) -> str:
    """Return a printable beginning of a name with a hash of the whole name."""
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return f"{shown.strip()[: MAX_ROUTE_CHARS - len(digest) - 1]}~{digest}"
