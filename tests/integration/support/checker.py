"""Checks beyond the promises, for runs with known faults or due times, or without any.

A function returns one line for each fault; an empty list means that the check holds. `violations`
has the promises of every run.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from docllm.schemas.task.states import Status
from tests.invariants import ends
from tests.invariants.calls import by_name
from tests.invariants.evidence import Evidence
from tests.invariants.promises import few, violations

__all__ = [
    "attempts_spent",
    "calls_before_due",
    "calls_too_early",
    "calls_twice",
    "lateness_s",
    "not_ended_once",
    "violations",
]


def not_ended_once(run: Evidence) -> list[str]:
    """Check P1 alone: every accepted task has one row, and it is final."""
    return few("P1 lost or invented", ends.lost_or_invented(run)) + few(
        "P1 not final", ends.not_final(run)
    )


def attempts_spent(run: Evidence) -> list[str]:
    """Check P5: an outage used up no attempt and killed no task.

    For runs whose only faults were outages.
    """
    return few(
        "P5 attempts",
        [
            f"{task.name}: {task.attempt}"
            for task in run.tasks
            if task.attempt or task.status == Status.DEAD
        ],
    )


def calls_before_due(run: Evidence, dues: Mapping[tuple[str, int], float]) -> list[str]:
    """Check P6: no call is made before the due time that the ledger had for it.

    `dues` maps task and label to UTC seconds.
    """
    late = lateness_s(run, dues)
    return few(
        "P6 before it was due",
        [f"{name}#{label} by {-by_s:.3f} s" for (name, label), by_s in late.items() if by_s < 0],
    )


def lateness_s(
    run: Evidence, dues: Mapping[tuple[str, int], float]
) -> dict[tuple[str, int], float]:
    """Return how long after its due time each of these calls began, in seconds."""
    starts: dict[tuple[str, int], float] = {}
    for call in sorted(run.calls, key=lambda call: call.start_s):
        starts.setdefault((call.name, call.label), call.start_utc_s)
    return {key: starts[key] - due_s for key, due_s in dues.items() if key in starts}


def calls_twice(run: Evidence) -> list[str]:
    """Check that each attempt of a task made at most one call, but for corrections.

    For runs in which nobody was killed and nothing was refused.
    """
    counts = Counter((call.name, call.label) for call in run.calls if not call.again)
    return few(
        "P4 calls of one attempt",
        [f"{name}#{label}: {count}" for (name, label), count in counts.items() if count > 1],
    )


def calls_too_early(run: Evidence, status: int, wait_s: float) -> list[str]:
    """Check P6: after an answer with `status`, the task is not called again before `wait_s`."""
    odd = [
        f"{name} after {second.start_s - (first.end_s or 0):.3f} s"
        for name, calls in by_name(run.calls).items()
        for first, second in pairwise(calls)
        if first.status == status and second.start_s < (first.end_s or 0) + wait_s
    ]
    return few("P6 too early", odd)
