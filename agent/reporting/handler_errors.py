"""Logs the errors of handlers: the first of each kind with its traceback, then their count."""

import logging
from dataclasses import dataclass

from docllm.agent.ports.outcome import Failure
from docllm.producer.text.printable import FRAMES
from docllm.schemas.codes import Code
from docllm.schemas.text.fingerprint import fingerprint

log = logging.getLogger(__name__)

LINE_EVERY_S = 60.0  # between two lines about one kind
MAX_KINDS = 200


@dataclass(slots=True)
class _ErrorKind:
    """Errors that are alike: of one type of task, at one place, with one fingerprint."""

    task_type: str
    place: str
    first: str  # the task at which the traceback was logged
    text: str
    logged_at_s: float
    count: int = 1

    def line(self) -> str:
        """Return how often this kind occurred, for the end."""
        return (
            f"handler of type {self.task_type} failed {self.count:,} times at {self.place}; the "
            f"traceback was logged with {self.first}"
        )

    def news(self) -> str:
        """Return how often this kind occurred so far, with its newest error."""
        return f"{self.line()}; the newest error: {self.text}"


class HandlerErrors:
    """The errors of an agent's handlers since its start.

    Of more kinds than `most_kinds`, the newer ones are only counted.
    """

    def __init__(self, most_kinds: int = MAX_KINDS) -> None:
        self._most_kinds = most_kinds
        self._kinds: dict[tuple[str, str, bytes], _ErrorKind] = {}
        self._others = 0

    def note(
        self,
        *,
        task: str,
        task_type: str,
        failure: Failure,
        place: str,
        now_s: float,
    ) -> None:
        """Log an error with its traceback if it is the first of its kind, otherwise count it.

        `task` names the task in a line of the log.
        """
        text = failure.text
        key = (task_type, place, fingerprint(failure.error_class, text))
        kind = self._kinds.get(key)
        if kind is not None:
            self._count(kind, text, now_s)
        elif len(self._kinds) < self._most_kinds:
            self._kinds[key] = _ErrorKind(task_type, place, task, text, now_s)
            message = "%s: handler of type %s failed at %s: %s"
            log.warning(
                message,
                task,
                task_type,
                place,
                text,
                extra={FRAMES: failure.traceback, "code": Code.HANDLER_FAILS},
            )
        else:
            self._note_other()

    def lines(self) -> list[str]:
        """Return a line for each kind that occurred more than once, the most frequent first."""
        kinds = sorted(self._kinds.values(), key=lambda kind: -kind.count)
        lines = [kind.line() for kind in kinds if kind.count > 1]
        if self._others:
            lines.append(
                f"handlers failed {self._others:,} more times with errors that are not logged"
            )
        return lines

    def _count(self, kind: _ErrorKind, text: str, now_s: float) -> None:
        kind.count += 1
        kind.text = text
        if now_s - kind.logged_at_s >= LINE_EVERY_S:
            kind.logged_at_s = now_s
            log.warning("%s", kind.news(), extra={"code": Code.HANDLER_FAILS})

    def _note_other(self) -> None:
        self._others += 1
        if self._others == 1:
            log.warning(
                "handlers failed in %d different ways; errors of further kinds are only counted",
                self._most_kinds,
                extra={"code": Code.HANDLER_FAILS},
            )
