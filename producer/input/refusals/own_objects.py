"""Refuses a second task for an object: the later result would replace the earlier one.

It sees the lines of one load. Of each object that a line names it keeps two hashes.
"""

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.task.line.parsing import is_exact


class OwnObjects:
    """The objects that the lines of a load have named so far."""

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task for the object of another task becomes a bad line."""
        uri = line.task.output_uri
        if not is_exact(uri):
            return line
        key = hash(line.key)
        if self._keys.setdefault(hash(uri), key) == key:
            return line
        fix = "name an object of its own, or a folder, with a slash at its end"
        return line.refused("output_uri", "names the object of an earlier line", fix)
