"""Under which claim a call of a fault run was made."""

import pytest

from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.states import Status
from tests.faults.claims import Claims
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall
from tests.invariants.evidence import Call, Task
from tests.invariants.happened import Move

AGENT = 5
OWNER = owner_of(AGENT, 1)
TASK = Task(1, "b/t1", Status.SUCCEEDED)


def move(at_s: float, before: Status, after: Status) -> Move:
    owners = (0, OWNER) if after is Status.PROCESSING else (OWNER, 0)
    return Move(at_s, at_s, at_s, TASK.id, before, after, *owners, 0, 0, 0.0, 0)


MOVES = [move(10, Status.PENDING, Status.PROCESSING), move(17, Status.PROCESSING, Status.PENDING)]


@pytest.mark.parametrize(
    ("heard_s", "freezes", "status"),
    [
        (12, [], Status.PROCESSING),
        (18, [], Status.PENDING),
        (18, [(9, 17.9)], Status.PROCESSING),
        (18, [(17.5, 17.9)], Status.PENDING),
        (30, [(9, 17.9)], Status.PENDING),
    ],
    ids=[
        "in time",
        "too late",
        "the LLM stood still",
        "it stood still later",
        "long after it stood still",
    ],
)
def test_a_call_is_judged_by_when_it_may_have_been_sent(
    heard_s: float, freezes: list[tuple[float, float]], status: Status
) -> None:
    """A call is judged by when it may have been sent.

    An agent that gave a call up cannot take it back from a frozen server, which reads it later.
    """
    claims = Claims(MOVES, {AGENT: Life("03-agent", 1, "agent1", 0)}, freezes)

    call = claims.known(ReceivedCall(Call(TASK.name, heard_s), None, "agent1"), TASK)

    assert call.claim is not None
    assert (call.claim.status, call.claim.owner, call.claim.program) == (
        status,
        OWNER,
        "03-agent",
    )
