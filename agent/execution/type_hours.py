"""The hours of types of task.

A task outside its type's hours is put off until the hours begin: it waits in the ledger, without a
counted attempt.
"""

from collections.abc import Mapping

from docllm.agent.judge import SPREAD
from docllm.agent.ports import Clock
from docllm.agent.ports.outcome import Failure, Moved, Spent
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import NO_SETTINGS, TypeConfig
from docllm.schemas.settings.schedule import begins_in_s
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.task_types import BUILT_IN
from docllm.schemas.task.waits import WaitReason

# The longest extra wait after the hours begin; tasks get different waits, so that they do not all
# start together.
LATER_S = 60.0


class TypeHours:
    """Knows which types have their hours now. `types` are the settings of types."""

    def __init__(self, *, types: Mapping[str, TypeConfig], clock: Clock) -> None:
        self._clock = clock
        self._asleep: set[str] = set()  # types of which a task was met outside of its hours
        self.apply(types)

    def apply(self, types: Mapping[str, TypeConfig]) -> None:
        """Take over changed settings."""
        self._settings = types
        has_rules = {
            name
            for name, of_type in types.items()
            if of_type.is_limited
            or of_type.schedule is not None
            or of_type.on_loss == "dead"  # a claim is as good as a run, so none is made ahead
        }
        # The known types whose tasks wait for nothing of their type, and may run twice.
        self.plain = (BUILT_IN | types.keys() | {""}) - has_rules

    def wakes_in_s(self, name: str) -> float:
        """Return the time until the hours of a type begin; 0 during them, or if it has none."""
        hours = self._settings.get(name, NO_SETTINGS).schedule
        return 0.0 if hours is None else begins_in_s(hours, self._clock.utc_s())

    def is_awake(self, name: str) -> bool:
        """Return whether tasks of a type may run now; if not, note that some wait."""
        is_awake = not self.wakes_in_s(name)
        if is_awake:
            self._asleep.discard(name)
        else:
            self._asleep.add(name)
        return is_awake

    def move_until_hours(self, name: str, task_id: int) -> Moved:
        """Return the outcome of a claimed task that waits for the hours of its type."""
        wait_s = self.wakes_in_s(name)
        later_s = min(SPREAD * wait_s, LATER_S) * (task_id % 997) / 997
        hours = self._settings.get(name, NO_SETTINGS).schedule
        failure = Failure(ErrorClass.SCHEDULE, f"type {name} runs {hours}")
        return Moved(failure, Spent(), wait_s + later_s, WaitReason.HOURS, name)

    def reasons(self) -> list[Reason]:
        """Return which types wait for their hours, for the agent's report."""
        waits = {name: self.wakes_in_s(name) for name in sorted(self._asleep)}
        self._asleep = {name for name, wait_s in waits.items() if wait_s}
        return [
            Reason(
                Code.TYPE_ASLEEP,
                name,
                text=self._settings.get(name, NO_SETTINGS).schedule or "",
                seconds=wait_s,
            )
            for name, wait_s in waits.items()
            if wait_s
        ]
