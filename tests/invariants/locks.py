"""Locks: nobody uses what a lock guards once the next one has used it."""

from tests.invariants.evidence import Evidence


def used_by_two(run: Evidence) -> list[str]:
    """Uses of a lock come in the order of its fences: a holder before never follows the next one.

    A handler that checks its lock before each use is told in time that it lost it.
    """
    newest: dict[str, int] = {}
    odd = []
    for use in run.lock_uses:
        last = newest.get(use.lock, 0)
        if use.fence < last:
            where = f"{use.lock} by {use.program} at {use.at_s:.3f}"
            odd.append(f"{where}: with fence {use.fence}, after {last}")
        newest[use.lock] = max(use.fence, last)
    return odd
