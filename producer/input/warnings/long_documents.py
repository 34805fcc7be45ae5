"""Finds tasks that are probably longer than the context of their model.

What a model takes is set by `context_tokens`, or known for common models. A task's length is only
estimated, from its bytes, so the result is a warning and no refusal.
"""

from heapq import heappushpop
from itertools import count

from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.account import account
from docllm.schemas.settings.config import BYTES_PER_TOKEN, DEFAULT_ROUTE, Config
from docllm.schemas.settings.known_models import known_tokens
from docllm.schemas.settings.routing import configured_route
from docllm.schemas.task.line.parsing import TaskLine
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.wording import number_of

_NAMED = 3
_NAME_CHARS = 80
_REMEMBERED = 1000


class LongDocuments:
    """Counts the tasks that seem too long, and remembers the longest ones."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._limits: dict[tuple[str, str | None, str | None], tuple[str, int | None]] = {}
        self._longest: list[tuple[int, int, str, str, int]] = []
        self._order = count()
        self.count = 0

    def add(self, line: ValidLine) -> None:
        """Check one task: its line, and the document that it names by URI."""
        if line.task.type == MAP_REDUCE:
            return  # its agents split it
        tokens = (len(line.value) + (line.task.size or 0)) // BYTES_PER_TOKEN
        model, limit = self._limit_of(line.task)
        if limit is None or tokens <= limit:
            return
        self.count += 1
        # Of equally long tasks, the first one is kept.
        entry = (tokens, -next(self._order), line.document or line.key, model, limit)
        if len(self._longest) < _NAMED:
            self._longest.append(entry)
            self._longest.sort()
        else:
            heappushpop(self._longest, entry)

    def __str__(self) -> str:
        """Return the warning, empty without such a task."""
        if not self.count:
            return ""
        longest = [
            f"{name[:_NAME_CHARS]!r} (about {tokens:,} tokens, {model} takes {limit:,})"
            for tokens, _, name, model, limit in sorted(self._longest, reverse=True)
        ]
        rest = ", ..." if self.count > len(longest) else ""
        verb = "is" if self.count == 1 else "are"
        return (
            f"{number_of(self.count, 'task')} {verb} probably longer than the model takes: "
            f"{', '.join(longest)}{rest}; estimated with {BYTES_PER_TOKEN} bytes a token; "
            "load them as type map-reduce, which splits them, name a model that takes more, or "
            "correct `context_tokens` in the settings"
        )

    def _limit_of(self, task: TaskLine) -> tuple[str, int | None]:
        key = task.type, task.model, task.route
        if key not in self._limits:
            if len(self._limits) > _REMEMBERED:  # names come from lines, so there may be any number
                self._limits.clear()
            self._limits[key] = self._find_limit(*key)
        return self._limits[key]

    def _find_limit(
        self, type_name: str, model: str | None, route: str | None
    ) -> tuple[str, int | None]:
        """Return the model that a task takes, as agents choose it, and its limit."""
        chosen = configured_route(self._config, type_name, model, route)
        settings = account(self._config, chosen or DEFAULT_ROUTE)
        name = model or settings.model or ""
        is_own = settings.model == name
        return name, (settings.context_tokens if is_own else None) or known_tokens(name)
