"""Failures as native libraries and hostile values make them; most are no Exception."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn


class PanicError(BaseException):
    """What a panic in native code looks like."""


class MuteError(Exception):
    """An error whose message cannot be made."""

    def __str__(self) -> str:
        raise PanicError("no message either")


class HalfLetterError(Exception):
    """An error whose message no database takes, and that a terminal would act on."""

    def __str__(self) -> str:
        return "half \ud800, turned \u202e, coloured \x9b31m"


FAILURES: list[BaseException] = [
    PanicError("a named target lives in its resolver's resource"),
    SystemExit(3),
    GeneratorExit(),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    MemoryError(),
    RecursionError("maximum depth"),
    MuteError(),
    HalfLetterError(),
    ValueError("of the library"),
    StopIteration(7),
]


def names(error: BaseException) -> str:
    return type(error).__name__


def failing(
    error: BaseException,
    real: Callable[..., Any] | None = None,
    *,
    on: Callable[..., bool] = lambda *_: True,
) -> Any:
    """Return a function that raises this error if `on` returns true and else calls `real`."""

    def call(*arguments: Any, **named: Any) -> Any:
        if on(*arguments) or real is None:
            _fail(error)
        return real(*arguments, **named)

    return call


def _fail(error: BaseException) -> NoReturn:
    raise error
