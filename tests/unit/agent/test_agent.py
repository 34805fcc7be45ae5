"""How an agent ends its parts."""

import asyncio
from unittest.mock import create_autospec

import pytest

from docllm.agent import agent as lifecycle
from docllm.agent.agent import Membership, RepairAgent
from docllm.agent.ports import AtRest, Source
from docllm.agent.process.stop_request import StopRequest
from docllm.schemas.errors import UnreachableError
from tests.support.agent import AgentHarness, double, for_ever


def test_a_cancel_that_a_library_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel that a library swallowed is repeated.

    The client takes the cancel for the end of its own wait and goes on. An agent used to wait for
    ever then.
    """
    monkeypatch.setattr(lifecycle, "CANCEL_EVERY_S", 0.01)
    lost: list[str] = []

    async def duty() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append("the first")

    async def failing() -> None:
        raise ValueError("it is not for who waits")

    async def run() -> list[bool]:
        tasks = [asyncio.create_task(duty()), asyncio.create_task(failing())]
        await asyncio.sleep(0)
        await asyncio.wait_for(lifecycle.end(tasks), 20)
        return [task.cancelled() for task in tasks]

    assert (asyncio.run(run()), lost) == ([True, False], ["the first"])


def test_an_agent_that_is_done_has_limited_time_to_leave() -> None:
    """A finished agent has limited time to leave: it gets no signal, and others wait for it."""
    messages: list[str] = []

    asyncio.run(
        AgentHarness()
        .agent()
        .run(StopRequest(lambda: messages.append("leaving")), until_done=True, drain_timeout_s=1)
    )

    assert messages == ["leaving"]


def test_a_look_that_fails_is_no_end_of_the_work() -> None:
    """A failed look is no end of the work: exit code 0 would mean that the work is done."""
    harness = AgentHarness()
    harness.group_work.any_open_task.side_effect = RuntimeError("the ledger cannot be asked")

    with pytest.raises(RuntimeError, match="cannot be asked"):
        asyncio.run(harness.agent().run(StopRequest(), until_done=True, drain_timeout_s=1))


def test_all_sources_are_asked_at_once_whether_they_are_read() -> None:
    """No answer waits for that of another source; one that is behind keeps the agent at work."""
    harness = AgentHarness()
    other, asked = double(Source), asyncio.Event()
    lags = iter([3, 0])

    async def first_at_rest() -> AtRest:
        await asyncio.wait_for(asked.wait(), 20)
        asked.clear()
        return AtRest(joined=True, lag=0)

    async def other_at_rest() -> AtRest:
        asked.set()
        return AtRest(joined=True, lag=next(lags))

    harness.source.at_rest.side_effect = first_at_rest
    other.at_rest.side_effect = other_at_rest
    agent = harness.agent()
    agent.sources = [harness.source, other]

    asyncio.run(agent.run(StopRequest(), until_done=True, drain_timeout_s=1))

    harness.claimer.ask_about_all.assert_called_once_with()
    assert next(lags, None) is None


async def broken() -> None:
    raise RuntimeError("a bug")


def test_an_agent_of_which_a_part_broke_drains_too() -> None:
    """If a part breaks, the paid calls still end and are settled before the error is raised."""
    harness = AgentHarness()
    harness.ticker.run.side_effect = broken

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(harness.agent().run(StopRequest(), until_done=False, drain_timeout_s=1))

    harness.admission.stop_starting.assert_called_once_with()
    assert "settler.wait_until_idle" in harness.steps


def test_the_reason_of_a_failure_is_logged_though_nothing_can_be_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the broken part is raised even if nothing can be settled.

    It is what a person has to know, and often the reason why nothing can be settled.
    """
    monkeypatch.setattr(lifecycle, "SETTLE_S", 0.01)
    harness = AgentHarness()
    harness.ticker.run.side_effect = broken
    harness.stuck.add("settler.wait_until_idle")

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(harness.agent().run(StopRequest(), until_done=False, drain_timeout_s=1))


def test_a_repair_agent_has_limited_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair agent has limited time to leave: a stalled database does not keep it."""
    monkeypatch.setattr(lifecycle, "STOP_S", 0.01)
    stop, membership = StopRequest(), create_autospec(Membership, instance=True)
    membership.leave.side_effect = for_ever
    stop.signal()

    with pytest.raises(UnreachableError, match="still lists this agent as running"):
        asyncio.run(
            asyncio.wait_for(RepairAgent(duties=[for_ever], membership=membership).run(stop), 20)
        )
