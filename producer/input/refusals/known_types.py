"""Decides which types of task a load takes, and explains why it refuses one.

A task of a type that nobody knows would wait in every agent. Most often, its type is misspelt.
"""

import difflib
import math
from collections.abc import Callable, Collection

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.settings.claim_time import over_limit

_NAMED = 8  # known types that an error names


class KnownTypes:
    """The types that a load takes.

    - `configured` are those of this program's settings, the built-in ones included.
    - `reported` are those that an agent of the group has reported lately.
    - `allowed` are those that the person who loads lets through.

    `limit_of` tells the most time that an attempt of a type may have.
    """

    def __init__(
        self,
        *,
        configured: Collection[str],
        reported: Collection[str] = (),
        allowed: Collection[str] = (),
        limit_of: Callable[[str], float] = lambda _type: math.inf,
    ) -> None:
        self._limit_of = limit_of
        self._known = {*configured, *reported, *allowed}

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task of an unknown type becomes a bad line."""
        name, asked_s = line.task.type, line.task.time_limit_s
        if name not in self._known:
            return line.refused("type", f"{name!r} is unknown", self._fix(name))
        fault = None if asked_s is None else over_limit(name, asked_s, self._limit_of(name))
        return line if fault is None else line.refused("time_limit_s", *fault)

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
