"""Names the routes of a task from its line and its type, and previews the size of its call.

Pure.

Nothing here trusts what a task says.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from docllm.agent.quota.estimate import CallSize, most_out
from docllm.agent.routes.plan import RoutePlan
from docllm.schemas.settings.account import account, configured_routes
from docllm.schemas.settings.config import BYTES_PER_TOKEN, DEFAULT_ROUTE, Config
from docllm.schemas.settings.fallback import chain
from docllm.schemas.settings.known_models import UNKNOWN_TOKENS, known_tokens
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.route_state import MAX_ROUTE_CHARS
from docllm.schemas.task.task_types import DOCUMENT, MAP_REDUCE, OPENAI
from docllm.schemas.text.untrusted import contained

DEFAULT = DEFAULT_ROUTE
_DIGEST_BYTES = 8
_REMEMBERED = 1000
_MAX_BYTES = 1 << 40  # of a document; a line is not trusted


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


@dataclass(frozen=True, slots=True)
class Preview:
    """What a record's value shows before its task is claimed: routes, size and tenant."""

    plan: RoutePlan
    size: CallSize = field(default_factory=CallSize)
    tenant: str = DEFAULT_TENANT

    @property
    def route(self) -> str:
        """The route on which the task begins."""
        return self.plan.first


def preview(value: bytes | None, names: RouteNames) -> Preview:
    """Return the routes, size and tenant that a task line, in either format, shows.

    A value that cannot be read has the default route.
    """
    unread = Preview(names.plan_of_route(DEFAULT))
    if value is None:
        return unread
    try:
        with contained():
            line = orjson.loads(value)
            return _preview(line, len(value), names) if isinstance(line, dict) else unread
    except Exception:  # noqa: BLE001 - the attempt gives up an unreadable body, not this
        return unread


def route_refusal(names: RouteNames, value: bytes, allowed: tuple[str, ...] | None) -> str:
    """Return why a task line may take no route within its batch's bounds; "" if it may take one."""
    return preview(value, names).plan.within_batch(allowed).refusal


def _preview(line: dict[str, Any], length: int, names: RouteNames) -> Preview:
    if "custom_id" in line or "body" in line:
        body = _table(line.get("body"))
        plan = names.plan(OPENAI, _text(body.get("model")))
        size = CallSize(task_type=OPENAI, input_bytes=length, most_out=most_out(body))
        return Preview(plan, size)
    task_type, source = _text(line.get("type")) or DOCUMENT, _table(line.get("input"))
    size = CallSize(
        task_type=task_type,
        input_bytes=length + _bytes(source.get("size")),
        most_out=most_out(_table(line.get("params"))),
        by_uri="uri" in source,
    )
    model = _text(line.get("model"))
    plan = names.plan(
        task_type,
        model,
        _text(line.get("route")) or None,
        _texts(line.get("routes_allowed")),
    )
    if task_type == MAP_REDUCE:  # its first call has one part of the document
        context_bytes = names.context_tokens(plan.first, model) * BYTES_PER_TOKEN
        size = replace(size, input_bytes=min(size.input_bytes, context_bytes))
    return Preview(plan, size, _text(line.get("tenant")) or DEFAULT_TENANT)


def _texts(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(text for text in value if isinstance(text, str))


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


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _bytes(value: Any) -> int:
    """Return a document's size; any other value says nothing."""
    return min(value, _MAX_BYTES) if isinstance(value, int) and value > 0 else 0
