"""The drain: its steps in their order, the time of each, and what it says if one does not end."""

import asyncio

import pytest

from docllm.agent import agent as lifecycle
from docllm.agent.agent import HOOKS_S, PUBLISH_S, SETTLE_S, STOP_S
from docllm.agent.process import drain_watchdog
from docllm.agent.process.stop_request import StopRequest
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime import crash
from docllm.schemas.task.hooks import HookEvent
from tests.support.agent import AgentHarness, for_ever
from tests.support.leaving import LEAVING_S

DRAIN_S = 20.0


def drain(harness: AgentHarness, stop: StopRequest | None = None) -> None:
    """Ask an agent to stop, and wait for its end."""
    if stop is None:
        stop = StopRequest()
        stop.signal()
    asyncio.run(
        asyncio.wait_for(
            harness.agent().run(stop, until_done=False, drain_timeout_s=DRAIN_S), timeout=20
        )
    )


def test_the_steps_come_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step begins before the one before it has ended.

    The partitions go to other agents first, while the running calls go on under the lease. The
    lease ends last, because hooks and settles need it.
    """
    harness = AgentHarness()
    harness.admission.stop_starting.side_effect = lambda: harness.steps.append("no more claims")
    monkeypatch.setattr(crash, "reach", harness.steps.append)

    drain(harness)

    assert harness.steps == [
        "no more claims",
        "source.leave",
        "drain.group_left",
        "slots.drain",
        "claimer.wait_for_claim",
        "settler.wait_until_idle",
        "drain.settled",
        "hooks.drain",
        "own_orders.flush",
        "drain.published",
        "membership.leave",
        "source.leave",  # safe to call twice, and needed if the drain failed
    ]


def test_dropped_answers_are_logged_after_the_last_of_them() -> None:
    """Partitions that are given up at the end, and outcomes that are settled then, drop answers."""
    harness = AgentHarness()
    log = harness.dispatcher.log_dropped_answers
    log.side_effect = lambda: harness.steps.append("log_dropped_answers")

    drain(harness)

    assert harness.steps[-2:] == ["source.leave", "log_dropped_answers"]


def test_calls_and_hooks_share_the_drains_time() -> None:
    """Hooks get what the calls have left of `drain_timeout_s`; sending has a limit of its own."""
    harness = AgentHarness()
    harness.hooks.kinds = frozenset({("document", HookEvent.SUCCESS)})
    harness.taken_s = {"slots.drain": 15.0}

    drain(harness)

    harness.slots.drain.assert_awaited_once_with(DRAIN_S)
    assert harness.hooks.drain.await_args.args == (DRAIN_S - 15.0,)
    harness.own_orders.flush.assert_awaited_once_with(PUBLISH_S)


def test_an_agent_without_hooks_waits_for_none() -> None:
    """The ends of hooks are stored all the same: settings may have named hooks before."""
    harness = AgentHarness()

    drain(harness)

    assert harness.hooks.drain.await_args.args == (0.0,)


@pytest.mark.parametrize(
    ("limit", "step", "facts", "message"),
    [
        ("SETTLE_S", "claimer.wait_for_claim", {}, "a claim has no answer"),
        (
            "SETTLE_S",
            "settler.wait_until_idle",
            {"settler": {"unsettled": 2}},
            "it has not settled 2 outcomes",
        ),
        (
            "HOOKS_S",
            "hooks.drain",
            {"hooks": {"unwritten": 3}},
            "it has not stored the ends of 3 hooks",
        ),
        ("STOP_S", "membership.leave", {}, "it still lists this agent as running"),
    ],
    ids=("claim", "settle", "hooks", "lease"),
)
def test_each_step_has_its_own_limit(
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    step: str,
    facts: dict[str, dict[str, int]],
    message: str,
) -> None:
    """The error says what was not done; the steps behind it are left out, and the group is left."""
    monkeypatch.setattr(lifecycle, limit, 0.01)
    harness = AgentHarness()
    harness.stuck.add(step)
    for part, values in facts.items():
        getattr(harness, part).configure_mock(**values)

    with pytest.raises(UnreachableError, match=f"^the database does not answer: {message}"):
        drain(harness)

    assert harness.steps[-2:] == [step, "source.leave"]


def test_a_second_signal_hurries_the_calls_and_the_hooks() -> None:
    """Running calls are cancelled, and due hooks are left to other agents."""
    harness, stop = AgentHarness(), StopRequest()
    stop.signal()

    async def drain_slots(timeout_s: float) -> None:
        if timeout_s:
            stop.signal()
            await for_ever()

    harness.slots.drain.side_effect = drain_slots

    drain(harness, stop)

    assert [call.args for call in harness.slots.drain.await_args_list] == [(DRAIN_S,), (0,)]
    assert harness.hooks.drain.await_args.kwargs["hurry"]()


def test_the_watchdog_leaves_every_step_its_time() -> None:
    """The watchdog ends a drain only after all limits have passed."""
    assert SETTLE_S + HOOKS_S + PUBLISH_S + STOP_S < LEAVING_S < drain_watchdog.GRACE_S


@pytest.mark.parametrize("asked", [False, True])
def test_draining_is_said_only_if_somebody_asked_for_it(
    caplog: pytest.LogCaptureFixture, *, asked: bool
) -> None:
    """The end of all work is no drain, although the last calls may still be settled."""
    caplog.set_level("INFO")
    harness = AgentHarness()
    harness.slots.running = 1
    if not asked:
        harness.failures.report("the source has ended")

    stop = StopRequest()
    if asked:
        stop.signal()
        drain(harness, stop)
    else:
        with pytest.raises(Exception, match="the source has ended"):
            drain(harness, stop)

    said = "draining: waiting for 1 call, at most 20 s"
    assert (said in caplog.messages) is asked
