"""Tasks that are claimed before a slot is free for them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.ports.outcome import Outcome, Released
from docllm.agent.process.containment import enter_handler
from tests.support.routes import GOOD, routes
from tests.support.slots import SlotsHarness, claimed

SLOTS = 8


class AheadHarness(SlotsHarness):
    """Slots that are all taken, until `ended` is set; `begun` are the tasks that have begun."""

    def __init__(self) -> None:
        super().__init__(routes(), self._attempt)
        self.ended = asyncio.Event()
        self.begun: list[int] = []
        self.tasks: list[asyncio.Task[object] | None] = []  # of the event loop, for each of them
        self.before_end: Callable[[], object] = lambda: None

    async def _attempt(self, delivery: Delivery) -> Outcome:
        self.begun.append(delivery.task_id)
        self.tasks.append(asyncio.current_task())
        await self.ended.wait()
        self.before_end()
        return GOOD

    def play(
        self, then: Callable[["AheadHarness", Slots, list[Delivery]], Awaitable[None]]
    ) -> None:
        """Take all slots, claim two tasks ahead, and go on as `then` does."""
        asyncio.run(self._play(then))

    async def _play(
        self, then: Callable[["AheadHarness", Slots, list[Delivery]], Awaitable[None]]
    ) -> None:
        slots = self.slots()
        for number in range(SLOTS):
            slots.start(claimed(number, self.clock.now_s()))
        ahead = [claimed(number, self.clock.now_s()) for number in (100, 101)]
        for delivery in ahead:
            slots.start_when_free(delivery)
        await asyncio.sleep(0)
        assert (slots.running, slots.ahead) == (SLOTS, 2)
        await then(self, slots, ahead)
        self.ended.set()
        await slots.drain(5.0)


async def _some_steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_task_that_was_claimed_ahead_starts_when_a_slot_is_free() -> None:
    """The time of its attempt begins then."""

    async def end(harness: AheadHarness, slots: Slots, ahead: list[Delivery]) -> None:
        assert {delivery.state for delivery in ahead} == {DeliveryState.CLAIMED}
        claimed_at_s = [delivery.claimed_at_s for delivery in ahead]
        harness.ended.set()
        await _some_steps()
        assert all(
            delivery.claimed_at_s > at_s for delivery, at_s in zip(ahead, claimed_at_s, strict=True)
        )

    harness = AheadHarness()
    harness.play(end)

    assert harness.begun[SLOTS:] == [100, 101]
    assert harness.settler.outcomes == [GOOD] * (SLOTS + 2)


def _first_tasks_go_on(before_end: Callable[[], object]) -> bool:
    """Return whether tasks that were claimed ahead run where others have ended."""

    async def end(harness: AheadHarness, slots: Slots, _ahead: list[Delivery]) -> None:
        harness.before_end = before_end
        harness.ended.set()
        await _some_steps()
        assert slots.running == 0

    harness = AheadHarness()
    harness.play(end)
    assert harness.settler.outcomes == [GOOD] * (SLOTS + 2)
    return set(harness.tasks[SLOTS:]) <= set(harness.tasks[:SLOTS])


def test_an_attempt_goes_on_in_the_asyncio_task_of_one_that_ended() -> None:
    assert _first_tasks_go_on(lambda: None)


def test_no_attempt_runs_in_the_context_of_another_ones_handler() -> None:
    assert not _first_tasks_go_on(lambda: enter_handler(asyncio.current_task()))


def test_an_attempt_that_went_on_is_cancelled_alone() -> None:
    """It is released, and nothing follows it."""

    async def drain(harness: AheadHarness, slots: Slots, _ahead: list[Delivery]) -> None:
        # Called again and again until the first attempts have ended; those that follow them hang.
        harness.before_end = harness.ended.clear
        harness.ended.set()
        await _some_steps()
        assert (slots.running, slots.ahead) == (2, 0)
        late = claimed(102, harness.clock.now_s())
        harness.slots_admission.stop_starting()
        await slots.drain(0.0)
        slots.start_when_free(late)

    harness = AheadHarness()
    harness.play(drain)

    assert harness.settler.outcomes == [GOOD] * SLOTS + [Released()] * 3
    assert harness.begun[SLOTS:] == [100, 101]


def test_a_task_whose_lease_was_lost_before_its_slot_was_free_makes_no_call() -> None:
    async def lose(harness: AheadHarness, slots: Slots, ahead: list[Delivery]) -> None:
        for delivery in ahead:
            assert delivery.lease is not None
            delivery.lease.is_lost = True
        harness.ended.set()
        await _some_steps()

    harness = AheadHarness()
    harness.play(lose)

    assert harness.begun == list(range(SLOTS))
    assert harness.settler.outcomes.count(Released()) == 2


def test_a_drain_gives_back_what_waits_for_a_slot() -> None:
    """It is given back before the running attempts have ended."""

    async def drain(harness: AheadHarness, slots: Slots, _ahead: list[Delivery]) -> None:
        harness.slots_admission.stop_starting()
        draining = asyncio.ensure_future(slots.drain(5.0))
        await asyncio.sleep(0)
        assert harness.settler.outcomes == [Released()] * 2
        late = claimed(102, harness.clock.now_s())
        slots.start_when_free(late)  # its claim was under way when the drain began
        assert harness.settler.outcomes == [Released()] * 3
        harness.ended.set()
        await draining

    AheadHarness().play(drain)


def test_only_what_is_over_is_given_back() -> None:
    async def give_back(harness: AheadHarness, slots: Slots, ahead: list[Delivery]) -> None:
        slots.give_back_ahead(lambda delivery: delivery is ahead[0])
        assert (slots.ahead, harness.settler.outcomes) == (1, [Released()])

    AheadHarness().play(give_back)


@pytest.mark.parametrize("losses", [1, 2])
def test_a_task_with_losses_does_not_wait_for_a_slot(losses: int) -> None:
    """It is given back, and claimed again when a slot is free."""

    async def add(harness: AheadHarness, slots: Slots, _ahead: list[Delivery]) -> None:
        slots.start_when_free(claimed(102, harness.clock.now_s(), lease_losses=losses))
        assert (slots.ahead, harness.settler.outcomes) == (2, [Released()])

    AheadHarness().play(add)
