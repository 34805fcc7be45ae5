"""Finds tasks that are probably longer than the context of their model.

What a model takes is set by `context_tokens`, or known for common models. A task's length is only
estimated, from its bytes, so the result is a warning and no refusal.
"""

from heapq import heappushpop
from itertools import count

from docllm.producer.input.accounts import TaskAccounts
from docllm.producer.input.lines import ValidLine
from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.task.task_types import MAP_REDUCE
from docllm.schemas.text.wording import number_of

_NAMED = 3
_NAME_CHARS = 80


class LongDocuments:
    """Counts the tasks that seem too long, and remembers the longest ones."""

    def __init__(self, accounts: TaskAccounts) -> None:
        self._accounts = accounts
        self._longest: list[tuple[int, int, str, str, int]] = []
        self._order = count()
        self.count = 0

    def add(self, line: ValidLine) -> None:
        """Check one task: its line, and the document that it names by URI."""
        account = self._accounts.of(line.task)
        limit = account.context_tokens
        if limit is None or line.task.type == MAP_REDUCE:  # its agents split it
            return
        if (tokens := line.input_bytes // BYTES_PER_TOKEN) <= limit:
            return
        self.count += 1
        # Of equally long tasks, the first one is kept.
        entry = (tokens, -next(self._order), line.document or line.key, account.model, limit)
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
