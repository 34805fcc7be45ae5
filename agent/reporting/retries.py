"""The attempts of an agent that failed and will be made again, by class of error."""

from dataclasses import dataclass

from docllm.agent.ports.outcome import Failure
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.wording import number_of, one_line

LINE_EVERY_S = 60.0  # between two lines about one class


@dataclass(slots=True)
class _Class:
    count: int = 0
    told: int = 0
    told_at_s: float = 0.0
    example: str = ""

    def is_due(self, now_s: float) -> bool:
        return self.count > self.told and (not self.told or now_s - self.told_at_s >= LINE_EVERY_S)


class Retries:
    """Counts failed attempts, each class of error with its newest error as example.

    Errors of handlers are not counted here: they are logged with their traceback.
    """

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def note(self, failure: Failure) -> None:
        """Count an attempt after which its task waits in a retry tier."""
        if failure.error_class is ErrorClass.HANDLER:
            return
        kind = self._classes.setdefault(failure.error_class, _Class())
        kind.count += 1
        kind.example = failure.text

    def due(self, now_s: float, group: str) -> list[str]:
        """Return a line for each class at once, and then once a minute while its count grows."""
        lines = []
        for name, kind in self._classes.items():
            if kind.is_due(now_s):
                kind.told, kind.told_at_s = kind.count, now_s
                lines.append(
                    f"{number_of(kind.count, 'attempt')} failed and will be made again, with "
                    f"{name}, such as: {one_line(kind.example)}; to test the LLM: "
                    f"docllm check --group {group}"
                )
        return lines
