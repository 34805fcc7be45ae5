"""The life of a row: each change is a known step, and changes only that step's columns."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from docllm.agent.ports import SUSPECT_LOSSES
from docllm.schemas.task.states import FINAL, WAITING, Status
from tests.invariants.evidence import Evidence
from tests.invariants.happened import Move

Owner = Literal["nobody", "somebody", "the same", "let go"]


@dataclass(frozen=True, slots=True)
class Step:
    """One way in which a row changes.

    `fence`, `attempts`, `losses`, `replays`: by how much they rise; None: they are set to 0.
    `of_suspect`: only a task changes so that was a suspect when it was claimed.
    """

    name: str
    before: tuple[Status | None, ...]
    after: Status
    owner: Owner
    fence: int = 0
    attempts: int | None = 0
    losses: int | None = 0
    replays: int = 0
    of_suspect: bool = False


_TAKEN = (Status.PROCESSING, Status.PENDING)  # PENDING: reaped, and settled late by its last owner
STEPS = (
    Step("load", (None,), Status.PENDING, "nobody"),
    Step("claim", WAITING, Status.PROCESSING, "somebody"),
    Step("succeed", _TAKEN, Status.SUCCEEDED, "let go", losses=None),
    Step("retry", _TAKEN, Status.RETRYING, "let go", fence=1, attempts=1, losses=None),
    Step("move", _TAKEN, Status.RETRYING, "let go", fence=1),
    Step("snooze or release", _TAKEN, Status.PENDING, "let go"),
    Step("die", _TAKEN, Status.DEAD, "let go", attempts=1, losses=None),
    # The attempt ended its process or its time: the task may still be the one that kills agents.
    Step("retry a suspect", _TAKEN, Status.RETRYING, "let go", 1, attempts=1, of_suspect=True),
    Step("die a suspect", _TAKEN, Status.DEAD, "let go", attempts=1, of_suspect=True),
    Step("cancel", (Status.PROCESSING, *WAITING), Status.CANCELLED, "nobody"),
    Step("reap", (Status.PROCESSING,), Status.PENDING, "the same", losses=1),
    Step("lose", (Status.PROCESSING,), Status.DEAD, "let go", attempts=1, losses=1),
    *(
        Step("undo losses", (status,), status, "the same", losses=-1)
        for status in (Status.PENDING, Status.PROCESSING, Status.RETRYING)
    ),
    Step("relieve", (Status.PROCESSING,), Status.PROCESSING, "the same"),
    Step("put off", (Status.PENDING,), Status.PENDING, "the same"),
    Step("put off", (Status.RETRYING,), Status.RETRYING, "the same"),
    Step("replay", FINAL, Status.PENDING, "nobody", fence=1, attempts=None, losses=None, replays=1),
)


def not_a_step(run: Evidence) -> list[str]:
    """Every change of a row is one of the steps."""
    losses: Counter[int] = Counter()
    attempts: Counter[int] = Counter()
    suspects: dict[int, bool] = {}
    odd = []
    for move in run.moves or ():
        losses[move.task_id] += move.losses
        attempts[move.task_id] += move.attempts
        if move.claims:
            suspects[move.task_id] = losses[move.task_id] >= SUSPECT_LOSSES
        if not any(
            _is(step, move, attempts[move.task_id], losses[move.task_id])
            for step in STEPS
            if suspects.get(move.task_id) or not step.of_suspect
        ):
            odd.append(
                f"{move}, fence {move.fence - move.old_fence:+}, attempts {move.attempts:+}, "
                f"losses {move.losses:+}"
            )
    return odd


def _is(step: Step, move: Move, attempts: int, losses: int) -> bool:
    counts = (
        attempts == 0 if step.attempts is None else move.attempts == step.attempts,
        _lost(step.losses, move.losses, losses),
        move.fence - move.old_fence == step.fence,
        move.replays == step.replays,
    )
    return (
        move.before in step.before
        and move.after is step.after
        and _owns(step.owner, move)
        and all(counts)
    )


def _lost(rise: int | None, risen: int, losses: int) -> bool:
    """Return whether the step may change the losses so; it may take back several at once."""
    if rise is None:
        return losses == 0
    return risen < 0 <= losses if rise < 0 else risen == rise


def _owns(owner: Owner, move: Move) -> bool:
    match owner:
        case "nobody":
            return not move.owner
        case "somebody":
            return bool(move.owner)
        case "the same":
            return move.owner == move.old_owner
        case "let go":
            return bool(move.old_owner) and not move.owner
