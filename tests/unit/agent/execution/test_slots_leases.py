"""A claimed task runs only while its lease is good, however long it waited in the agent."""

from dataclasses import replace

from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.lease import HEARTBEAT_MAX_AGE_S
from docllm.agent.ports.outcome import Released
from tests.support.routes import GOOD, routes
from tests.support.slots import LONGEST, RAISED, LookLedger, SlotsHarness, claimed, ending, started


def silent(delivery: Delivery) -> None:
    """Make the heartbeat silent for as long as other agents wait."""
    assert delivery.lease is not None
    delivery.lease.beaten_at_s -= HEARTBEAT_MAX_AGE_S + 1


def test_a_task_whose_lease_ran_out_is_released() -> None:
    """A claimed task is given back after its lease ran out."""
    harness = SlotsHarness(routes(), ending(GOOD))
    delivery = claimed(1, harness.clock.now_s())
    silent(delivery)

    assert started(harness, delivery) == [Released()]
    assert harness.counts.attempts == 0


def test_a_task_whose_lease_ran_out_during_its_guards_answer_is_released() -> None:
    """The ledger took its time to say that it may go in the guard's look."""
    harness = SlotsHarness(routes(), ending(GOOD))
    delivery = claimed(1, harness.clock.now_s())

    async def join_look(_guard_id: int, _task_id: int) -> bool:
        silent(delivery)
        return True

    harness.guards = GuardGate(
        clock=harness.clock, longest_tier=LONGEST, ledger=LookLedger(join_look)
    )
    harness.guards.replace([replace(RAISED, look_left=1)])

    assert started(harness, delivery) == [Released()]
