"""The judge of fault runs: a repeated call is excused only if a logged fault explains it."""

from collections.abc import Sequence
from typing import Any

import pytest

from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.states import Status
from tests.faults import causes
from tests.faults.lives import Life
from tests.faults.received_calls import ReceivedCall
from tests.faults.run_evidence import RunEvidence
from tests.invariants.evidence import Attempt, Call, Evidence
from tests.invariants.happened import Claim, Move

NAME, TASK, AGENT = "b/t1", 1, 5
OWNER, OTHER = owner_of(AGENT, 1), owner_of(9, 1)


def heard(
    start_s: float, status: int = 200, fault: str | None = None, owner: int = OWNER
) -> ReceivedCall:
    call = Call(
        name=NAME,
        start_s=start_s,
        end_s=start_s + 1,
        status=status,
        start_utc_s=start_s,
        task_id=TASK,
        claim=Claim("a", Status.PROCESSING, owner),
    )
    return ReceivedCall(call, fault, "agent1")


def ended(at_s: float, after: Status, losses: int = 0) -> Move:
    left = OWNER if losses else 0
    return Move(
        order=at_s,
        at_s=at_s,
        clock_s=at_s,
        task_id=TASK,
        before=Status.PROCESSING,
        after=after,
        old_owner=OWNER,
        owner=left,
        old_fence=0,
        fence=0,
        old_due_s=0.0,
        losses=losses,
    )


def fault(
    kind: str,
    cost: str,
    start_s: float,
    end_s: float,
    seats: Sequence[str] = ("agent1",),
    **evidence: Any,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "cost": cost,
        "start_s": start_s,
        "end_s": end_s,
        "seats": seats,
        "evidence": evidence,
    }


def cause(
    first: ReceivedCall,
    moves: Sequence[Move],
    faults: Sequence[dict[str, Any]],
    attempts: Sequence[Attempt] = (),
) -> str:
    run = Evidence(frozenset({NAME}), [], attempts=attempts, moves=moves)
    agents = {AGENT: Life("03-agent", 1, "agent1", 0)}
    (repeat,) = causes.repeats(
        RunEvidence(
            run=run,
            received=[first, heard(100, owner=OTHER)],
            faults=faults,
            lives=[],
            agents=agents,
            bugs=[],
        )
    )
    return repeat.cause


def test_a_kill_explains_repeated_calls_of_its_agent() -> None:
    """A kill explains its agent's repeated calls: the task is reset and called again."""
    assert (
        cause(
            heard(10), [ended(25, Status.PENDING, losses=1)], [fault("agent-kill", "lease", 12, 12)]
        )
        == "agent lost: agent-kill"
    )


def test_a_refusal_by_the_limits_needs_no_fault() -> None:
    attempt = Attempt(
        task=NAME, number=0, outcome="snooze", error_class="RATE", settled_s=11, owner=OWNER
    )

    assert cause(heard(10, 429, "rpm"), [ended(11, Status.PENDING)], [], [attempt]) == "llm: limits"


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [fault("agent-kill", "lease", 12, 12, seats=["agent2"])],
        [fault("agent-kill", "lease", 60, 60)],
        [fault("kafka-kill", "nothing", 5, 60)],
    ],
    ids=["no fault", "another agent's", "too late", "one that costs nothing"],
)
def test_a_lost_agent_needs_a_fault_that_can_cost_it(faults: Sequence[dict[str, Any]]) -> None:
    """A live agent's lease may only be taken after a fault that can stop its heartbeat."""
    assert cause(heard(10), [ended(25, Status.PENDING, losses=1)], faults) == causes.UNEXPLAINED


def test_a_refusal_is_matched_to_the_dialed_fault() -> None:
    """A refusal needs a logged setting of the LLM that makes it refuse."""
    dialed = fault("llm-503", "reply", 5, 20, seats=[], dialed="503=0.5")
    attempt = Attempt(
        task=NAME, number=0, outcome="retry", error_class="SERVER", settled_s=11, owner=OWNER
    )

    assert (
        cause(heard(10, 503, "503"), [ended(11, Status.RETRYING)], [dialed], [attempt])
        == "llm: llm-503"
    )
    assert (
        cause(heard(10, 503, "503"), [ended(11, Status.RETRYING)], [], [attempt])
        == causes.UNEXPLAINED
    )


def test_an_answer_that_did_not_arrive_needs_a_way_that_was_cut() -> None:
    """A lost answer needs a fault on the way between LLM and agent."""
    attempt = Attempt(
        task=NAME, number=0, outcome="retry", error_class="AMBIGUOUS", settled_s=11, owner=OWNER
    )
    cut = fault("llm-link-cut", "reply", 9, 14)

    assert (
        cause(heard(10, 200), [ended(11, Status.RETRYING)], [cut], [attempt])
        == "answer lost: llm-link-cut"
    )
    assert cause(heard(10, 200), [ended(11, Status.RETRYING)], [], [attempt]) == causes.UNEXPLAINED


def test_a_freeze_takes_an_answer_when_the_time_limit_passes_meanwhile() -> None:
    """A freeze explains a lost answer only if the call's time limit passed meanwhile.

    The answer waits in the socket until the agent continues; a shorter freeze costs nothing.
    """
    attempt = Attempt(
        task=NAME, number=0, outcome="retry", error_class="AMBIGUOUS", settled_s=17, owner=OWNER
    )
    # Answered at 11; its time limit ends at 16.
    late, moves = heard(10), [ended(17, Status.RETRYING)]

    assert (
        cause(late, moves, [fault("agent-freeze", "nothing", 10.5, 16.1)], [attempt])
        == "time limit passed: agent-freeze"
    )
    for freeze in (
        fault("agent-freeze", "nothing", 10.5, 14),
        fault("agent-freeze", "nothing", 12, 16.1),
        fault("agent-freeze", "nothing", 10.5, 16.1, seats=["agent2"]),
    ):
        assert cause(late, moves, [freeze], [attempt]) == causes.UNEXPLAINED
    assert cause(late, moves, [fault("agent-freeze", "nothing", 10.5, 16.1)]) == causes.UNEXPLAINED


def test_a_request_may_arrive_just_after_the_hole_that_held_it() -> None:
    """A request may arrive just after the hole that held it, though the agent gave it up."""
    attempt = Attempt(
        task=NAME, number=0, outcome="retry", error_class="AMBIGUOUS", settled_s=11, owner=OWNER
    )

    assert cause(
        heard(10, 0),
        [ended(11, Status.RETRYING)],
        [fault("llm-link-hole", "reply", 2, 9.9)],
        [attempt],
    ).endswith("llm-link-hole")
    assert (
        cause(
            heard(10, 0),
            [ended(11, Status.RETRYING)],
            [fault("llm-link-hole", "reply", 2, 7)],
            [attempt],
        )
        == causes.UNEXPLAINED
    )


def test_an_answer_that_was_thrown_away_has_no_cause() -> None:
    """An undisturbed agent must not give a claim back after its answer."""
    assert cause(heard(10), [ended(12, Status.PENDING)], []) == causes.UNEXPLAINED
    assert cause(heard(10), [], []) == causes.UNEXPLAINED


def test_an_agent_may_call_as_soon_as_it_is_thawed() -> None:
    """The agent may have looked at its lease just before the freeze; later it must have noticed."""
    thawed = fault("agent-freeze-long", "lease", 80, 99.9)
    long_ago = fault("agent-freeze-long", "lease", 80, 95)
    moves = [ended(12, Status.PENDING)]

    stood_still = causes.STOOD_STILL.format("agent-freeze-long")
    assert cause(heard(85), [], [thawed]) == stood_still
    assert cause(heard(85), [], [long_ago]) == causes.UNEXPLAINED
    other = fault("agent-freeze-long", "lease", 80, 99.9, seats=["agent2"])
    assert cause(heard(10), moves, [other]) == causes.UNEXPLAINED


def test_an_agent_that_was_asked_to_leave_releases_its_claims() -> None:
    """An agent that was asked to leave ends its calls and releases its claims."""
    left = fault("agent-hurry", "reply", 10.5, 11)

    assert cause(heard(10, 0), [ended(11, Status.PENDING)], [left]).endswith("agent-hurry")
