"""Describes a handler's error: its text, its classes, and where it was raised."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from docllm.agent.handlers.decisions import ComeBackError, GiveUpError, TryAgainError
from docllm.agent.judge.classes import names_of
from docllm.agent.process.containment import leaf_errors
from docllm.agent.process.frames import frames_of_error, place_of, traceback_text
from docllm.schemas.text.untrusted import describe_error, described
from docllm.schemas.text.wording import one_line

_ABANDONED = "something that the handler waited for was cancelled"


class Decision(StrEnum):
    """What a handler decides about its task by an error."""

    GIVE_UP = "give up"
    TRY_AGAIN = "try again"
    COME_BACK = "come back"


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of a handler.

    `names` are those of its class and of each class above it. `decision` is what the handler
    decided, with `after_s`, `at` and the JSON of its `state`; None for any other error.
    """

    text: str
    names: Sequence[Sequence[str]]
    traceback: str
    place: str
    decision: Decision | None = None
    after_s: float = 0.0
    at: datetime | None = None
    state: bytes | None = None


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
        **_decided(error),
    )


def _decided(error: BaseException) -> dict[str, Any]:
    if isinstance(error, GiveUpError):
        return {"decision": Decision.GIVE_UP}
    if isinstance(error, TryAgainError):
        return {"decision": Decision.TRY_AGAIN, "after_s": error.after_s, "at": error.at}
    if isinstance(error, ComeBackError):
        wait = {"after_s": error.after_s, "at": error.at, "state": error.state_json}
        return {"decision": Decision.COME_BACK, **wait}
    return {}


def deciding_leaf(raised: BaseException, first: type[BaseException]) -> BaseException:
    """Return the deciding error of a group: the first of class `first`, or else the first."""
    errors = list(leaf_errors(raised))
    return next((error for error in errors if isinstance(error, first)), errors[0])


def _description(error: BaseException) -> str:
    if isinstance(error, GiveUpError | TryAgainError | ComeBackError):
        return described(error)
    if isinstance(error, asyncio.CancelledError) and not error.args:
        return f"{type(error).__name__}: {_ABANDONED}"
    return describe_error(error)
