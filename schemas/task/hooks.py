"""The hooks of a type of task: user code that runs after an attempt has ended.

A hook is ordered in the transaction that ends the attempt, and runs at least once after it. It runs
again after a failure or the loss of its agent, until it succeeds or is given up.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class HookEvent(StrEnum):
    """The end of an attempt after which a hook runs, as it is stored."""

    SUCCESS = "success"
    RETRY = "retry"  # the attempt failed and counts, and the task waits for the next one
    DEAD = "dead"  # the task ended without success: it is dead or cancelled


class HookState(IntEnum):
    """The state of an ordered hook; one that has run has no row."""

    WAITS = 0
    RUNS = 1
    GAVE_UP = 2


# The events for which a type has a hook, by type.
Hooked = Mapping[str, frozenset[HookEvent]]
HookKind = tuple[str, HookEvent]  # type and event
