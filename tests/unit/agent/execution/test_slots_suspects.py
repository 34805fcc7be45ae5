"""Suspects, over which agents were lost, run one at a time, after three losses alone."""

import asyncio

import pytest

from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports.outcome import Released
from docllm.producer.text.agent_sentences import suspect_text
from tests.support.routes import GOOD, routes
from tests.support.slots import SlotsHarness, claimed, ending


class Run:
    """Slots in which these tasks were started, while none has ended."""

    def __init__(self, *losses: int) -> None:
        self.harness = SlotsHarness(routes(), ending(GOOD))
        self.harness.guards.replace([])
        self.deliveries = [self.new_delivery(number, times) for number, times in enumerate(losses)]

    def new_delivery(self, number: int, losses: int) -> Delivery:
        return claimed(number, self.harness.clock.now_s(), lease_losses=losses)

    def takes(self, losses: int) -> tuple[bool, int]:
        """Return whether a suspect may be claimed beside them, and how many other tasks may."""

        async def run() -> tuple[bool, int]:
            slots = self.started()
            claimable = (
                self.harness.slots_admission.route_suspect(self.new_delivery(99, losses)),
                self.harness.slots_admission.room(),
            )
            await slots.drain(5.0)
            return claimable

        return asyncio.run(run())

    def started(self) -> Slots:
        slots = self.harness.slots()
        for delivery in self.deliveries:
            slots.start(delivery)
        return slots


@pytest.mark.parametrize(
    ("running", "losses", "takes", "room"),
    [
        ((), 2, True, 8),
        ((0, 1), 2, True, 6),  # beside tasks that are no suspects
        ((2,), 2, False, 7),
        ((), 3, True, 8),
        ((0,), 3, False, 7),  # it waits until nothing else runs
        ((3,), 2, False, 0),  # and nothing begins beside it
    ],
)
def test_one_suspect_runs_at_a_time(
    running: tuple[int, ...],
    losses: int,
    takes: bool,  # noqa: FBT001
    room: int,
) -> None:
    """If its agent is lost, few tasks can have been the reason."""
    assert Run(*running).takes(losses) == (takes, room)


async def test_a_second_suspect_is_released() -> None:
    """What was claimed in error does not begin."""
    run = Run(2, 2)
    await run.started().drain(5.0)

    assert run.harness.settler.outcomes == [Released(), GOOD]


async def test_a_running_suspect_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """If the process dies, its log's last line names the task; until it ends, so does `status`."""
    run = Run(3)
    slots = run.started()
    await asyncio.sleep(0)
    suspects = run.harness.slots_admission.suspects.reports
    await slots.drain(5.0)
    assert run.harness.slots_admission.suspects.reports == ()
    notice = "; ".join(map(suspect_text, suspects))

    assert notice == "task k of batch b runs alone in its agent: 3 agents were lost over it"
    assert notice in caplog.text
