"""The checker of a row's steps."""

from docllm.schemas.task.states import Status
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Move
from tests.invariants.steps import not_a_step


def step(before: Status | None, after: Status, *, owners: tuple[int, int], **rises: int) -> Move:
    old_owner, owner = owners
    return Move(
        order=0,
        at_s=0,
        clock_s=0,
        task_id=1,
        before=before,
        after=after,
        old_owner=old_owner,
        owner=owner,
        old_fence=0,
        fence=rises.get("fence", 0),
        old_due_s=0,
        losses=rises.get("losses", 0),
        attempts=rises.get("attempts", 0),
    )


def odd_after_losses(count: int, last: Move) -> list[str]:
    """Return what is wrong with a claimed task's last step, after `count` lost agents."""
    claim = step(Status.PENDING, Status.PROCESSING, owners=(0, 9))
    reap = step(Status.PROCESSING, Status.PENDING, owners=(9, 9), losses=1)
    moves = [step(None, Status.PENDING, owners=(0, 0)), *([claim, reap] * count), claim, last]
    return not_a_step(Evidence(loaded=frozenset(), tasks=(), moves=moves))


RETRY = step(Status.PROCESSING, Status.RETRYING, owners=(9, 0), fence=1, attempts=1)
DIE = step(Status.PROCESSING, Status.DEAD, owners=(9, 0), attempts=1)


def test_only_a_suspect_keeps_its_losses() -> None:
    """A failed attempt forgets the losses, unless the task may be the one that kills agents."""
    assert odd_after_losses(2, RETRY) == odd_after_losses(2, DIE) == []
    assert odd_after_losses(0, RETRY) == odd_after_losses(0, DIE) == []
    (retry,) = odd_after_losses(1, RETRY)
    (die,) = odd_after_losses(1, DIE)
    assert "RETRYING of 0, fence +1, attempts +1, losses +0" in retry
    assert "DEAD of 0, fence +0, attempts +1, losses +0" in die
