"""Finds the model, route and limits that a task will meet, once for all tasks that are alike."""

from dataclasses import dataclass

from docllm.schemas.settings.account import account, configured_route, quota_key
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config
from docllm.schemas.settings.known_models import known_tokens
from docllm.schemas.task.line.parsing import TaskLine

_REMEMBERED = 1000


@dataclass(slots=True)
class TaskAccount:
    """What tasks of one type, model and route will meet.

    `model` and `route` are empty if none is configured, and so is `quota`, the key of the account's
    limits. `context_tokens` is what the model takes, None if nobody knows.
    """

    model: str
    route: str
    quota: str
    context_tokens: int | None


class TaskAccounts:
    """The accounts of a load's tasks, chosen as agents choose them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: dict[tuple[str, str | None, str | None], TaskAccount] = {}

    @property
    def types(self) -> set[str]:
        """The types of the tasks, as far as they are remembered."""
        return {name for name, _, _ in self._known}

    def of(self, task: TaskLine) -> TaskAccount:
        """Return the account of a task."""
        key = task.type, task.model, task.route
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:  # names come from lines: there may be any number
                self._known.clear()
            known = self._known[key] = self._find(*key)
        return known

    def _find(self, type_name: str, model: str | None, route: str | None) -> TaskAccount:
        chosen = configured_route(self.config, type_name, model, route)
        settings = account(self.config, chosen or DEFAULT_ROUTE)
        name = model or settings.model or ""
        own_tokens = settings.context_tokens if settings.model == name else None
        return TaskAccount(
            name,
            chosen or "",
            quota_key(settings) if chosen is not None else "",
            own_tokens or known_tokens(name),
        )
