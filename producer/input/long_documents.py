"""Finds tasks that are probably longer than the context of their model.

What a model takes is set by `context_tokens`, or known for common models. A task's length is only
estimated, from its bytes, so the result is a warning and no refusal.
"""

from heapq import heappushpop
from itertools import count

from producer.input.lines import Good
from schemas.settings.account import account
from schemas.settings.config import BYTES_PER_TOKEN, DEFAULT_ROUTE, Config
from schemas.settings.routing import configured_route
from schemas.task.line import TaskLine
from schemas.task.wording import counted

_NAMED = 3
_NAME_CHARS = 80
_REMEMBERED = 1000
# Input and output together, as the providers state them, compared in November 2026 with the table
# of litellm 1.110. A name covers its dated versions, such as gpt-4o-2024-08-06; the longest name
# decides.
KNOWN_TOKENS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "gpt-5-chat": 128_000,
    "gpt-5.1": 400_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5.2": 400_000,
    "gpt-5.2-chat": 128_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_050_000,
    "gpt-5.6": 1_050_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude-3": 200_000,
    "claude-3-5": 200_000,
    "claude-3-7": 200_000,
    "claude-haiku-4-5": 200_000,
    "claude-haiku-5-5": 1_000_000,
    "claude-opus-4-1": 200_000,
    "claude-opus-4-5": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-5": 200_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "gemini-2.0-flash": 1_048_576,
    "gemini-2.5-flash": 1_048_576,
    "gemini-2.5-pro": 1_048_576,
    "gemini-3-flash": 1_048_576,
    "gemini-3.1-flash": 1_048_576,
    "gemini-3.1-pro": 1_048_576,
    "gemini-3.5-flash": 1_048_576,
    "mistral-large": 262_144,
    "mistral-large-4": 1_048_576,
    "mistral-large-2407": 128_000,
    "mistral-large-2411": 128_000,
    "mistral-medium": 262_144,
}


def known_tokens(model: str) -> int | None:
    """Return how many tokens a common model takes, None for any other."""
    name = model.rpartition("/")[2]  # a gateway puts the provider in front
    known = [start for start in KNOWN_TOKENS if name == start or name.startswith(f"{start}-")]
    return KNOWN_TOKENS[max(known, key=len)] if known else None


class LongDocuments:
    """Counts the tasks that seem too long, and remembers the longest ones."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._limits: dict[tuple[str, str | None, str | None], tuple[str, int | None]] = {}
        self._longest: list[tuple[int, int, str, str, int]] = []
        self._order = count()
        self.count = 0

    def add(self, line: Good) -> None:
        """Check one task: its line, and the document that it names by URI."""
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
            f"{counted(self.count, 'task')} {verb} probably longer than the model takes: "
            f"{', '.join(longest)}{rest}; estimated with {BYTES_PER_TOKEN} bytes a token; "
            "split them, name a model that takes more, or correct `context_tokens` in the settings"
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
