"""Finds tasks whose deadline has passed before they are loaded. They die without a call."""

from datetime import UTC, datetime

from docllm.producer.input.lines import ValidLine
from docllm.schemas.text.wording import number_of


class PastDeadlines:
    """Counts the tasks whose deadline lies before `utc_s`, and remembers the first one."""

    def __init__(self, utc_s: float) -> None:
        self._now = datetime.fromtimestamp(utc_s, UTC)
        self._first: ValidLine | None = None
        self.count = 0

    def add(self, line: ValidLine) -> None:
        """Check the deadline of one task."""
        deadline = line.task.deadline
        if deadline is not None and deadline < self._now:
            self.count += 1
            self._first = self._first or line

    def __str__(self) -> str:
        """Return the warning, empty without such a task."""
        if self._first is None or self._first.task.deadline is None:
            return ""
        when = f"{self._first.task.deadline:%Y-%m-%dT%H:%M:%SZ}"
        verb, fate = ("has", "it") if self.count == 1 else ("have", "they")
        return (
            f"{number_of(self.count, 'task')} {verb} a deadline that has passed, such as "
            f"{self._first.key!r} (line {self._first.line}: {when}); {fate} will be dead without "
            "a call"
        )
