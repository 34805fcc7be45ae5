"""A claim that needs no call is settled without one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge.guard_rule import closed_text
from docllm.agent.ports.outcome import Cancelled, Dead, Moved, Outcome, Succeeded
from docllm.schemas.agent_report import BlockReport
from docllm.schemas.task.joins import JoinRole
from tests.support.routes import GOOD, ROUTE, routes
from tests.support.slots import SlotsHarness, claimed, ending, started


def cancelled(now_s: float) -> Delivery:
    delivery = claimed(1, now_s)
    delivery.row = replace(delivery.row, cancelled=True) if delivery.row else None
    return delivery


def paid(now_s: float) -> Delivery:
    """Return a delivery with a paid answer, whose batch was cancelled since."""
    assert isinstance(GOOD, Succeeded)
    delivery = cancelled(now_s)
    delivery.kept_answer = GOOD
    return delivery


def claimed_only(now_s: float) -> Delivery:
    return claimed(1, now_s)


def expired(now_s: float) -> Delivery:
    return claimed(1, now_s, expired=True)


def doomed(now_s: float) -> Delivery:
    return claimed(1, now_s, join_role=JoinRole.DOOMED)


@pytest.mark.parametrize(
    ("make", "kind"), [(paid, Succeeded), (cancelled, Cancelled), (claimed_only, Moved)]
)
async def test_a_claim_that_needs_no_call_is_not_moved(
    make: Callable[[float], Delivery], kind: type[Outcome]
) -> None:
    """A claim that needs no call is not moved while its route is closed.

    Its answer, which is there, would be paid twice.
    """
    harness = SlotsHarness(routes(), ending(GOOD))
    slots = harness.slots()
    slots.move(make(harness.clock.now_s()))
    await slots.drain(5.0)

    (outcome,) = harness.settler.outcomes
    assert isinstance(outcome, kind)


def test_slots_move_tasks_with_the_text_by_which_they_are_found() -> None:
    """The text names the route."""
    harness = SlotsHarness(routes(slots=3), ending(GOOD))

    harness.slots().move(claimed(1, harness.clock.now_s()))

    (outcome,) = harness.settler.outcomes
    assert isinstance(outcome, Moved)
    assert outcome.failure.text == closed_text(ROUTE)


@pytest.mark.parametrize(
    ("make", "kind"), [(cancelled, Cancelled), (expired, Dead), (doomed, Dead), (paid, Succeeded)]
)
def test_a_claim_that_needs_no_call_is_settled_at_once(
    make: Callable[[float], Delivery], kind: type[Outcome]
) -> None:
    """A cancelled batch, a passed deadline, a dead child or a paid answer needs no call."""
    harness = SlotsHarness(routes(), ending(GOOD))

    (outcome,) = started(harness, make(harness.clock.now_s()))

    assert isinstance(outcome, kind)
    assert harness.counts.attempts == 0


async def test_the_task_that_an_asyncio_task_works_for_is_found() -> None:
    """Whoever watches the loop sees an asyncio task, and names the task of the batch."""
    found: list[BlockReport | None] = []

    async def act(_delivery: Delivery) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        found.append(slots[0].work_of(task))
        return GOOD

    harness, slots = SlotsHarness(routes(), act), []
    slots.append(harness.slots())
    slots[0].start(claimed(5, harness.clock.now_s()))
    await slots[0].drain(5.0)
    own = asyncio.current_task()
    assert own is not None
    found.append(slots[0].work_of(own))

    assert found == [BlockReport(task=5, batch="b", key="k", type="document"), None]


def unwritten(now_s: float) -> Delivery:
    delivery = paid(now_s)
    assert isinstance(GOOD, Succeeded)
    delivery.kept_answer = replace(GOOD, output_uri="s3://b/")
    return delivery


@pytest.mark.parametrize("make", [claimed_only, unwritten])
def test_an_answer_is_written_before_it_is_settled(make: Callable[[float], Delivery]) -> None:
    """A new answer and a kept one; the kept one makes no call."""
    assert isinstance(GOOD, Succeeded)
    harness = SlotsHarness(routes(), ending(replace(GOOD, output_uri="s3://b/")))

    (outcome,) = started(harness, make(harness.clock.now_s()))

    assert outcome == GOOD
    assert len(harness.attempt_runner.limits_s) == (make is claimed_only)


def test_an_answer_that_cannot_be_written_is_settled_as_what_became_of_it() -> None:
    """Nothing is settled that points nowhere."""
    assert isinstance(GOOD, Succeeded)
    harness = SlotsHarness(routes(), ending(replace(GOOD, output_uri="s3://b/")))
    harness.attempt_runner.written = Cancelled()

    (outcome,) = started(harness, claimed_only(harness.clock.now_s()))

    assert outcome == Cancelled()
