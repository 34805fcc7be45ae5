"""Finds tasks that fail with a provider's error although the provider answers others. Pure.

Such tasks are at fault themselves.
"""

from collections import OrderedDict

REMEMBERED = 1000


class FaultyTasks:
    """The tasks of one route that met the provider's error, and when each last did."""

    def __init__(self) -> None:
        self._failed_at_s: OrderedDict[int, float] = OrderedDict()

    def note_failure(self, task_id: int, now_s: float, answered_from_s: float) -> bool:
        """Note that a task failed; return whether it is at fault.

        It is at fault if it failed before and a call that began after that was answered.
        `answered_from_s` is when the newest call began that got a usable answer.
        """
        before_s = self._failed_at_s.pop(task_id, None)
        self._failed_at_s[task_id] = now_s
        if len(self._failed_at_s) > REMEMBERED:
            self._failed_at_s.popitem(last=False)
        return before_s is not None and answered_from_s > before_s
