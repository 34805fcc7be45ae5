"""Describes a handler's error: its text, its classes, and where it was raised."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from docllm.agent.handlers.decisions import GiveUpError, TryAgainError
from docllm.agent.judge.rules import names_of
from docllm.agent.process.containment import leaf_errors
from docllm.agent.process.frames import frames_of_error, place_of, traceback_text
from docllm.schemas.text.untrusted import describe_error, described
from docllm.schemas.text.wording import one_line

_ABANDONED = "something that the handler waited for was cancelled"


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of a handler.

    `names` are those of its class and of each class above it. `gives_up` and `after_s` are what the
    handler decided, if it raised GiveUpError or TryAgainError.
    """

    text: str
    names: Sequence[Sequence[str]]
    traceback: str
    place: str
    gives_up: bool = False
    after_s: float | None = None


class RemoteError(Exception):
    """A handler in another process raised an error."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


def fault_of(error: BaseException, located: BaseException) -> Fault:
    """Describe an error.

    `located` is the exception with the traceback: the error or its group.
    """
    if isinstance(error, RemoteError):
        return error.fault
    return Fault(
        text=one_line(_description(error)),
        names=names_of(error),
        traceback=traceback_text(located),
        place=place_of(frames_of_error(located)),
        gives_up=isinstance(error, GiveUpError),
        after_s=error.after_s if isinstance(error, TryAgainError) else None,
    )


def deciding_leaf(raised: BaseException, first: type[BaseException]) -> BaseException:
    """Return the deciding error of a group: the first of class `first`, or else the first."""
    errors = list(leaf_errors(raised))
    return next((error for error in errors if isinstance(error, first)), errors[0])


def _description(error: BaseException) -> str:
    if isinstance(error, GiveUpError | TryAgainError):
        return described(error)
    if isinstance(error, asyncio.CancelledError) and not error.args:
        return f"{type(error).__name__}: {_ABANDONED}"
    return describe_error(error)
