"""Libraries that fail over some records and replies, in ways that most code does not expect."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

Result = TypeVar("Result")

UNREADABLE = "unreadable"  # an inbox line over which the parser fails until the better release
UNDECODABLE = "undecodable"  # a task over which its agent's parser fails until then
# A task over whose answers the judge, or its schema's validator, fails now and then.
MISJUDGED = "misjudged"


class PanicError(BaseException):
    """A panic in native code, as Python sees it."""


class MuteError(Exception):
    """An error whose message cannot be created."""

    def __str__(self) -> str:
        raise PanicError


# A MemoryError over a known task is its agent's trouble, and no task's.
_OF_A_TASK: tuple[type[BaseException], ...] = (
    PanicError,
    SystemExit,
    GeneratorExit,
    asyncio.CancelledError,
    RecursionError,
    ValueError,
    MuteError,
)
_ANY = (*_OF_A_TASK, MemoryError)
_TEXT = "half \ud800, turned \u202e"


class Mishaps:
    """Decides by a seed which call of a library fails, and how.

    `well` tells whether the better release is there.
    """

    def __init__(self, rng: Random, well: Callable[[], bool]) -> None:
        self._rng = rng
        self._well = well
        self._judging = False

    def parsing(self, parse: Callable[[bytes], Result]) -> Callable[[bytes], Result]:
        """Return the parser of the inbox's lines."""
        return self._failing(parse, UNREADABLE, _ANY)

    def parsing_again(self, parse: Callable[[bytes], Result]) -> Callable[[bytes], Result]:
        """Return the parser of an agent's tasks."""
        return self._failing(parse, UNDECODABLE, _OF_A_TASK)

    def _failing(
        self, parse: Callable[[bytes], Result], kind: str, errors: tuple[type[BaseException], ...]
    ) -> Callable[[bytes], Result]:
        def read(value: bytes) -> Result:
            if kind.encode() in value and not self._well():
                raise self._rng.choice(errors)(_TEXT)
            return parse(value)

        return read

    def judging(self, judge: Callable[..., Result]) -> Callable[..., Result]:
        """Return the judge of an answer's message, which names its task; the judge may fail."""

        def judged(message: Any, *rest: Any, **options: Any) -> Result:
            self._fail_sometimes(MISJUDGED in str(message))
            self._judging = True
            try:
                return judge(message, *rest, **options)
            finally:
                self._judging = False

        return judged

    def validating(self, make: Callable[..., Result]) -> Callable[..., Result]:
        """Return the function that makes a schema's validator; it may fail over an answer.

        A line whose schema cannot be read is a bad line, and no task comes of it.
        """

        def made(schema: dict[str, Any]) -> Result:
            self._fail_sometimes(self._judging and schema.get("title") == MISJUDGED)
            return make(schema)

        return made

    def _fail_sometimes(self, about_ours: bool) -> None:  # noqa: FBT001 - it has no other meaning
        if about_ours and self._rng.random() < 0.5:
            raise self._rng.choice(_ANY)(_TEXT)
