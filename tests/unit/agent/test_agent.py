"""How an agent ends its parts."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from agent import agent as lifecycle
from agent.agent import Agent, Reaper
from agent.maintenance.group_work import GroupWork
from agent.process.failures import Failures
from agent.process.stop_request import StopRequest
from schemas.errors import UnreachableError


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


async def for_ever(*_: object, **_named: object) -> None:
    await asyncio.Event().wait()


async def nothing(*_: object, **_named: object) -> int:
    return 0


async def no_notes() -> list[str]:
    return []


def group(**answers: object) -> GroupWork:
    """Return the work of a group that has nothing to do, or these answers about it."""
    idle = dict.fromkeys(("open_tasks", "orders", "any_work", "any_dead"), nothing)
    return cast("GroupWork", SimpleNamespace(**({"notes": no_notes} | idle | answers)))


def idle_agent() -> Agent:
    """Return an agent without sources, whose group has nothing to do."""
    parts = {
        name: MagicMock()
        for name in (
            "dispatcher",
            "claimer",
            "ticker",
            "admission",
            "slots",
            "settler",
            "intake",
            "publishing",
            "clock",
            "counts",
            "hooks",
        )
    }
    for part in parts.values():
        part.configure_mock(
            **{f"{duty}_forever": for_ever for duty in ("ask", "claim", "tick")},
            run=for_ever,
        )
        part.configure_mock(
            running=0,
            unsettled=0,
            without_verdict=0,
            wait_until_idle=nothing,
            drain=nothing,
            flush=nothing,
            wait_for_claim=nothing,
        )
    parts["intake"].idle = True
    parts["hooks"].configure_mock(kinds=frozenset(), busy=nothing)
    group_work = group()
    return Agent(
        **parts,
        failures=Failures(),
        group_work=group_work,
        sources=[],
        inbox=None,
        duties=[],
        membership=MagicMock(leave=nothing),
    )


def test_an_agent_that_is_done_has_limited_time_to_leave() -> None:
    """A finished agent has limited time to leave: it gets no signal, and others wait for it."""
    messages: list[str] = []

    asyncio.run(
        idle_agent().run(
            StopRequest(lambda: messages.append("leaving")), until_done=True, drain_timeout_s=1
        )
    )

    assert messages == ["leaving"]


def test_draining_is_said_only_if_somebody_asked_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """The end of all work is no drain, although the last calls may still be settled."""
    caplog.set_level("INFO")
    agent = idle_agent()
    agent._slots.running = 1  # type: ignore[misc]
    asked = StopRequest(lambda: None)
    asked.signal()

    asyncio.run(agent._drain(StopRequest(lambda: None), 1))
    assert caplog.messages == []
    asyncio.run(agent._drain(asked, 1))

    assert caplog.messages == ["draining: waiting for 1 call, at most 1 s"]


def test_a_look_that_fails_is_no_end_of_the_work() -> None:
    """A failed look is no end of the work: exit code 0 would mean that the work is done."""
    agent = idle_agent()

    async def broken() -> bool:
        raise RuntimeError("the ledger cannot be asked")

    agent._group_work = group(open_tasks=broken)

    with pytest.raises(RuntimeError, match="cannot be asked"):
        asyncio.run(agent.run(StopRequest(lambda: None), until_done=True, drain_timeout_s=1))


def test_an_agent_of_which_a_part_broke_drains_too() -> None:
    """If a part breaks, the paid calls still end and are settled before the error is raised."""
    agent, slots = idle_agent(), MagicMock(running=0, drain=nothing)
    agent._slots = slots

    async def broken() -> None:
        raise RuntimeError("a bug")

    agent._duties = [broken]

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(agent.run(StopRequest(lambda: None), until_done=False, drain_timeout_s=1))
    agent._admission.stop_granting.assert_called_once_with()  # type: ignore[attr-defined]


def test_the_reason_of_a_failure_is_logged_though_nothing_can_be_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the broken part is raised even if nothing can be settled.

    It is what a person has to know, and often the reason why nothing can be settled.
    """
    monkeypatch.setattr(lifecycle, "SETTLE_S", 0.01)
    agent = idle_agent()
    agent._settler = MagicMock(run=for_ever, wait_until_idle=for_ever, without_verdict=1)

    async def broken() -> None:
        raise RuntimeError("a bug")

    agent._duties = [broken]

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(agent.run(StopRequest(lambda: None), until_done=False, drain_timeout_s=1))


@pytest.mark.parametrize(
    ("limit", "part", "stuck", "message"),
    [
        ("SETTLE_S", "_claimer", {"wait_for_claim": for_ever}, "a claim has no answer"),
        (
            "SETTLE_S",
            "_settler",
            {"wait_until_idle": for_ever, "without_verdict": 2},
            "it has not settled 2 outcomes",
        ),
        (
            "HOOKS_S",
            "_hooks",
            {"drain": for_ever, "unwritten": 3, "kinds": frozenset()},
            "it has not stored the ends of 3 hooks",
        ),
        ("STOP_S", "_membership", {"leave": for_ever}, "it still lists this agent as running"),
    ],
    ids=("claim", "settle", "hooks", "lease"),
)
def test_each_step_of_a_drain_has_its_own_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, part: str, stuck: dict[str, Any], message: str
) -> None:
    """The error says what was not done. The other steps have their usual limits."""
    monkeypatch.setattr(lifecycle, limit, 0.01)
    agent = idle_agent()
    getattr(agent, part).configure_mock(**stuck)

    with pytest.raises(UnreachableError, match=f"^the database does not answer: {message}"):
        asyncio.run(asyncio.wait_for(agent._drain(StopRequest(), 1), 20))


def test_a_reaper_has_limited_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reaper has limited time to leave: a stalled database does not keep it."""
    monkeypatch.setattr(lifecycle, "STOP_S", 0.01)
    stop = StopRequest(lambda: None)
    stop.signal()

    with pytest.raises(UnreachableError, match="still lists this reaper as running"):
        asyncio.run(
            asyncio.wait_for(
                Reaper(duties=[for_ever], membership=MagicMock(leave=for_ever)).run(stop), 20
            )
        )
