"""How often a task's answer could not be used, in this agent's memory: a bounded count that a restart may forget."""

from collections import OrderedDict

from agent.outcome import Outcome, Snooze
from agent.policy import CLASSES, Action


class Strikes:
    """Counts by task id; beyond `size` tasks the oldest is forgotten."""

    def __init__(self, *, size: int = 10_000) -> None:
        self._size = size
        self._counts: OrderedDict[int, int] = OrderedDict()

    def of(self, task_id: int) -> int:
        """Return the strikes of a task."""
        return self._counts.get(task_id, 0)

    def note(self, task_id: int, outcome: Outcome) -> None:
        """Count a snooze that is a strike; an outage between two strikes changes nothing; anything else ends the count."""
        if not isinstance(outcome, Snooze):
            self._counts.pop(task_id, None)
        elif CLASSES[outcome.failure.error_class].action is Action.STRIKE:
            self._counts[task_id] = self.of(task_id) + 1
            self._counts.move_to_end(task_id)
            if len(self._counts) > self._size:
                self._counts.popitem(last=False)
