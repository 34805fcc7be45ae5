"""A task that must not run twice may begin again only after an end that was seen."""

import pytest

from docllm.schemas.task.states import Status
from tests.invariants.calls import begun_twice
from tests.invariants.evidence import Attempt, Evidence, Task
from tests.invariants.happened import HandlerRun, Move

P, R, T, D = Status.PENDING, Status.PROCESSING, Status.RETRYING, Status.DEAD
OWNER = 7


def move(order: float, before: Status, after: Status, *, owner: int = 0, replays: int = 0) -> Move:
    old_owner = OWNER if before is R else 0
    return Move(order, 0.0, 0.0, 1, before, after, old_owner, owner, 0, 0, 0.0, replays=replays)


CLAIM = move(1.0, P, R, owner=OWNER)
RESET = move(3.0, R, P, owner=OWNER)
RETRIED = move(3.0, R, T)
GIVEN_BACK = move(3.0, R, P)
DIED, REPLAYED = move(3.0, R, D), move(3.5, D, P, replays=1)
RETRY = (Attempt("b/a", 0, "retry", "SERVER", 0.0, OWNER),)


@pytest.mark.parametrize(
    ("ended", "moves", "attempts", "odd"),
    [
        (2.0, [RETRIED], RETRY, 0),
        (None, [RETRIED], RETRY, 0),  # a time limit ended it
        (None, [DIED, REPLAYED], (), 0),
        (2.0, [GIVEN_BACK], (), 0),  # it waits, which leaves no row
        (None, [GIVEN_BACK], (), 1),
        (None, [RESET], (), 1),
        (2.0, [RESET], (), 1),  # nobody has stored its end
        (6.0, [GIVEN_BACK], (), 1),  # it ended after the next run had begun
    ],
)
def test_a_second_run_needs_a_reason(
    ended: float | None, moves: list[Move], attempts: tuple[Attempt, ...], odd: int
) -> None:
    """Its first run failed, waited or was replayed."""
    run = Evidence(
        loaded=frozenset({"b/a"}),
        tasks=[Task(1, "b/a", int(R))],
        attempts=attempts,
        moves=[CLAIM, *moves],
        handler_runs=[HandlerRun(1, 2.0, ended), HandlerRun(1, 5.0)],
    )

    assert len(begun_twice(run)) == odd


def test_one_run_needs_none() -> None:
    """It may be cut off: its task is dead."""
    run = Evidence(frozenset({"b/a"}), [Task(1, "b/a", int(D))], handler_runs=[HandlerRun(1, 2.0)])

    assert begun_twice(run) == []
