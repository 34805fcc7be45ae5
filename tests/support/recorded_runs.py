"""Small correct runs as values, for tests of the checkers to break."""

from dataclasses import replace
from typing import Any

from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.states import Status
from tests.invariants.evidence import Attempt, Call, Death, Evidence, Letter, Position, Task
from tests.invariants.happened import Claim, Commit, Incarnation, Move, Stored

DONE = Task(1, "b/1", Status.SUCCEEDED, results=1, settled_s=20.0)
DEATH = Death(0, "permanent", "BAD_REQUEST")
DEAD = Task(2, "b/2", Status.DEAD, attempt=1, raw_key=b"2", value=b"{}", death=DEATH)
LETTER = Letter(b"2", b"{}", task_id=2, death=DEATH)
FAILED = Attempt(task="b/2", number=0, outcome="dead", error_class="BAD_REQUEST", settled_s=11.0)
CALL = Call("b/1", 10.0, 11.0, 200, start_utc_s=10.0)
GOOD = Evidence(
    loaded=frozenset({"b/1", "b/2"}),
    tasks=(DONE, DEAD),
    attempts=(FAILED,),
    positions=(
        Position(topic="g.tasks", number=0, low=0, high=2, committed=2),
        Position(topic="g.tasks", number=1, low=0, high=0, committed=None),
    ),
    letters=(LETTER, Letter(None, b"?", quarantine_id=7)),
    quarantined=(7,),
    calls=(CALL, Call("b/2", 10.0, 11.0, 400, start_utc_s=10.0)),
)
RETRIED = Attempt(task="b/1", number=0, outcome="retry", error_class="SERVER", settled_s=11.0)
AGAIN = replace(
    GOOD,
    tasks=(replace(DONE, attempt=1, settled_s=60.0), DEAD),
    attempts=(FAILED, RETRIED),
    calls=(
        replace(CALL, status=500),
        replace(CALL, start_s=42.0, end_s=43.0, start_utc_s=42.0, label=2),
    ),
)


def move(
    order: float,
    before: Status | None,
    after: Status,
    *,
    old: int = 0,
    owner: int = 0,
    **more: Any,
) -> Move:
    """Return a change of task 1; its order is also its time."""
    values: dict[str, Any] = {"old_fence": 0, "fence": 0, "old_due_s": 0.0} | more
    return Move(
        order=order,
        at_s=order,
        clock_s=order,
        task_id=1,
        before=before,
        after=after,
        old_owner=old,
        owner=owner,
        **values,
    )


# The same run in detail: task 1 is loaded, claimed under owner 5 of agent 1, called, settled, and
# its record committed past.
AGENT = owner_of(1, 0)
OWNER = AGENT | 5
CLAIMED = Call(
    "b/1",
    12.0,
    13.0,
    200,
    order=12,
    task_id=1,
    route="default",
    claim=Claim("agent", Status.PROCESSING, OWNER),
)
CLOSE = Evidence(
    loaded=frozenset({"b/1"}),
    tasks=(DONE,),
    positions=(Position(topic="g.tasks", number=0, low=0, high=1, committed=1),),
    calls=(CLAIMED,),
    moves=(
        move(1, None, Status.PENDING),
        move(11, Status.PENDING, Status.PROCESSING, owner=OWNER),
        move(14, Status.PROCESSING, Status.SUCCEEDED, old=OWNER, old_due_s=90.0),
    ),
    records=(Stored("g.tasks", 0, 0, 2, task_id=1),),
    commits=(Commit(15, "g.tasks", 0, 1),),
    agents={1: Incarnation(1, "agent")},
    slots=4,
)
