"""The hooks: user code that runs after an attempt of a type's task, or a batch, has ended.

A hook is ordered in the transaction that writes the end, and runs at least once after it. It runs
again after a failure or the loss of its agent, until it succeeds or is given up.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class HookEvent(StrEnum):
    """The end after which a hook runs, as it is stored."""

    SUCCESS = "success"
    RETRY = "retry"  # the attempt failed and counts, and the task waits for the next one
    DEAD = "dead"  # the task ended without success: it is dead or cancelled
    BATCH_DONE = "batch_done"  # every task of a closed batch is final
    OUTPUT = "output"  # docllm's own: the result is copied to the object that its line names


class HookState(IntEnum):
    """The state of an ordered hook; one that has run has no row."""

    WAITS = 0
    RUNS = 1
    GAVE_UP = 2


# The events for which a type has a hook, by type.
Hooked = Mapping[str, frozenset[HookEvent]]
HookKind = tuple[str, HookEvent]  # type and event
OF_BATCHES: HookKind = ("", HookEvent.BATCH_DONE)  # the hook of batches, of no type
COPY: HookKind = ("", HookEvent.OUTPUT)  # of every type


def hook_name(task_type: str, event: str) -> str:
    """Return how a sentence names a hook."""
    return f"on_{event} of type {task_type}" if task_type else f"on_{event}"
