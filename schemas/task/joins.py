"""Joins: follow-ups that run when the other follow-ups of their parent have ended."""

from enum import IntEnum


class JoinRole(IntEnum):
    """What a task is to a join, in the column `join_role` of `task`.

    A join that waits for its siblings does one of three things when all have ended and not all
    have succeeded: it waits for a replay of those, it runs, or it dies. DOOMED is a join that dies
    at its next claim.
    """

    NONE = 0
    SIBLING = 1  # a join waits for its end
    WAIT = 2
    RUN = 3
    DIE = 4
    DOOMED = 5

    @property
    def is_join(self) -> bool:
        """Whether the task itself is a join."""
        return self > JoinRole.SIBLING


# The values of `on_dead_child`.
ON_DEAD_CHILD = {"wait": JoinRole.WAIT, "run": JoinRole.RUN, "die": JoinRole.DIE}
