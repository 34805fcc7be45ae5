"""Decides which types of task a load takes, and explains why it refuses one.

A task of a type that nobody knows would wait in every agent. Most often, its type is misspelt.
"""

import difflib
from collections.abc import Collection

from docllm.producer.input.lines import InvalidLine, ValidLine

_NAMED = 8  # known types that an error names


class KnownTypes:
    """The types that a load takes.

    - `configured` are those of this program's settings, the built-in ones included.
    - `reported` are those that an agent of the group has reported lately.
    - `allowed` are those that the person who loads lets through.
    """

    def __init__(
        self,
        *,
        configured: Collection[str],
        reported: Collection[str] = (),
        allowed: Collection[str] = (),
    ) -> None:
        self._known = {*configured, *reported, *allowed}

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task of an unknown type becomes a bad line."""
        if line.task.type in self._known:
            return line
        name = line.task.type
        return line.refused("type", f"{name!r} is unknown", self._fix(name))

    def _fix(self, name: str) -> str:
        known = sorted(self._known)
        nearest = difflib.get_close_matches(name, known, 1)
        rest = ", ..." if len(known) > _NAMED else ""
        guess = (
            f"did you mean {nearest[0]}?"
            if nearest
            else f"known are: {', '.join(known[:_NAMED])}{rest};"
        )
        return (
            f"{guess} a type of your own needs [types.{name}] in the settings; "
            f"if only the agents have it, load with --allow-type {name}"
        )
