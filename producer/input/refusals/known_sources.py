"""Refuses documents that agents of an older version, which still run, cannot read.

Such an agent would give up the task as no task line.
"""

from collections.abc import Sequence

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.task.line.field_checks import is_file_uri

SOURCES_FROM = "0009"  # the revision of the first agents that read more than files
_UNKNOWN = "is unknown to agents of an older version that run"
_FIX = "stop or update these agents"


class KnownSources:
    """The documents that a load takes. `older` are running agents that read files only."""

    def __init__(self, older: Sequence[str] = ()) -> None:
        self._older = ", ".join(older)

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task that older agents would give up becomes a bad line."""
        task = line.task
        is_known = task.uri is None or (is_file_uri(task.uri) and task.etag is None)
        if is_known or not self._older:
            return line
        field = "input.uri" if task.uri and not is_file_uri(task.uri) else "input.etag"
        text = None if line.document else line.value.decode()
        return InvalidLine(
            line.line, field, f"{_UNKNOWN} ({self._older})", _FIX, text, line.document
        )
