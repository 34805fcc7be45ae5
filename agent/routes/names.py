"""Names the route of a task: by the model that the task names, or else by its type. Pure.

Nothing here trusts what a task says.
"""

import hashlib
from collections import OrderedDict
from typing import Any

import orjson

from schemas.settings.config import DEFAULT_ROUTE, MAX_ROUTE_CHARS, Config
from schemas.task.untrusted import contained

DEFAULT = DEFAULT_ROUTE
_DIGEST_BYTES = 8
_REMEMBERED = 1000


class RouteNames:
    """The names of routes.

    `[routes.NAME]` and `default` are `configured`. Every other model that a task names has a route
    of its own.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._models: OrderedDict[str, str] = OrderedDict()
        self._by_model: dict[str, str] = {}
        self.configured = (*sorted(config.routes.keys() - {DEFAULT}), DEFAULT)
        for name in self.configured:
            if model := self.model_of(name):
                self._by_model.setdefault(model, name)

    def name_of(self, type_name: str, model: str | None) -> str:
        """Return the route of a task."""
        if not model:
            task_type = self._config.types.get(type_name)
            return (task_type.route if task_type else None) or DEFAULT
        return self._by_model.get(model) or self._name_of_model(model)

    def model_of(self, route: str) -> str | None:
        """Return a route's model for tasks that name none; None lets the provider choose."""
        settings = self._config.routes.get(route)
        if settings is not None and settings.model is not None:
            return settings.model
        if route == DEFAULT:
            return self._config.llm.model
        return self._models.get(route, route)

    def _name_of_model(self, model: str) -> str:
        """Return the route name of a model that nobody configured.

        The name fits the ledger and a log line. It is no configured route's name and no other
        model's: MariaDB takes names for equal that differ only by trailing blanks.
        """
        fits = len(model) <= MAX_ROUTE_CHARS and model.isprintable() and model == model.strip()
        if fits and model not in self.configured:
            return model
        digest = hashlib.blake2b(
            model.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES
        ).hexdigest()
        shown = "".join(letter if letter.isprintable() else "?" for letter in model)
        name = f"{shown.strip()[: MAX_ROUTE_CHARS - len(digest) - 1]}~{digest}"
        self._models[name] = model
        self._models.move_to_end(name)
        if len(self._models) > _REMEMBERED:
            self._models.popitem(last=False)
        return name


def route_of(value: bytes | None, names: RouteNames) -> str:
    """Return the route of a record's value, which is a task line in either format.

    Returns the default route if the value cannot be read.
    """
    if value is None:
        return DEFAULT
    try:
        with contained():
            line = orjson.loads(value)
            return names.name_of(*_type_and_model(line)) if isinstance(line, dict) else DEFAULT
    except Exception:  # noqa: BLE001 - the attempt gives up an unreadable body, not this
        return DEFAULT


def _type_and_model(line: dict[str, Any]) -> tuple[str, str | None]:
    if "custom_id" in line or "body" in line:
        body = line.get("body")
        return "openai", _text(body.get("model")) if isinstance(body, dict) else None
    return _text(line.get("type")) or "document", _text(line.get("model"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
