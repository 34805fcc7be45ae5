"""The report says what the agent does, and no bug in it ends the agent."""

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.slots import Slots
from docllm.agent.maintenance.monitoring.reporter import Reporter
from docllm.agent.ports import Source
from docllm.agent.ports.lock_table import LockTable
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.routes import Router
from docllm.schemas.agent_report import AgentReport, Reason, SuspectReport
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.topics import Topics
from tests.support.clock import HandClock
from tests.support.doubles import double_of
from tests.support.routes import GOOD, call, paused, routes, snoozed, stopped
from tests.support.slots import SlotsHarness, claimed, ending

FORM = AgentReport(settings="s", program="0.1.0", revision="0001")


def source(**lag: int) -> Source:
    double: Source = double_of(
        Source, lag=lambda: {f"g.{name.replace('_', '.')}": n for name, n in lag.items()}
    )
    return double


def reporter(
    harness: SlotsHarness, slots: Slots, table: Router | None = None, clock: Clock | None = None
) -> Reporter:
    clock = clock or harness.clock
    return Reporter(
        form=FORM,
        latest=LatestReport(clock=clock),
        admission=harness.slots_admission,
        slots=slots,
        locks=ResourceLocks(table=cast("LockTable", None), clock=clock),
        routes=table or harness.router,
        sources=[source(tasks=7, tasks_bulk=2), source(inbox=0)],
        topics=Topics("g"),
        counts=harness.counts,
        clock=clock,
    )


def test_a_report_says_what_runs() -> None:
    """Slots, busy routes, the oldest call and suspects are those of this moment."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([])
    now_s = harness.clock.now_s()

    async def run() -> AgentReport:
        slots = harness.slots()
        old = claimed(5, now_s)
        old.claimed_at_s -= 20
        slots.start(old)
        slots.start(claimed(6, now_s, lease_losses=2))
        await asyncio.sleep(0)
        report = reporter(harness, slots).report()
        await slots.drain(5.0)
        assert reporter(harness, slots).report() == _idle()
        harness.slots_admission.stop_starting()
        assert reporter(harness, slots).report().draining
        return report

    report = asyncio.run(run())

    assert (report.slots, report.running, report.busy) == (8, 2, {"default": 2})
    call = report.oldest_call
    assert call is not None
    assert (call.task, call.batch, call.key, call.route) == (5, "b", "k", "default")
    assert 20 <= call.running_s < 30
    assert report.suspects == (SuspectReport(6, "b", "k", 2),)
    assert [route.name for route in report.routes] == ["default"]


def _idle() -> AgentReport:
    return AgentReport(
        settings="s", program="0.1.0", revision="0001", slots=8, lag={"tasks": 7, "tasks.bulk": 2}
    )


def test_a_report_says_since_when_a_route_is_closed() -> None:
    """A stopped route has the class of its failure, the time of day, and the next try."""
    table, clock = stopped(), HandClock()
    harness = SlotsHarness(table, ending(GOOD))
    clock.at_s = 101.0
    harness.counts.topic("g.inbox", known=False)

    report = reporter(harness, harness.slots(), clock=clock).report()

    (route,) = report.routes
    assert (route.state, route.error_class, route.since, route.open_in_s, route.allowed) == (
        "stopped",
        "SERVER",
        "1970-01-01T00:01:40Z",
        1.0,
        1,
    )
    assert report.reasons == (
        Reason(Code.TOPIC_UNKNOWN, "g.inbox"),
        Reason(
            code=Code.ROUTE_STOPPED,
            name="default",
            error_class="SERVER",
            text="503: away",
            seconds=1.0,
            address="http://llm",
        ),
    )


def test_a_pause_is_reported_with_the_limit_that_was_learned() -> None:
    """A refused route is open, but takes no call for a while."""
    table, clock = routes(), HandClock()
    harness = SlotsHarness(table, ending(GOOD))
    paused(table, snoozed("RATE", 4.0), 100.0)
    clock.at_s = 101.0

    (route,) = reporter(harness, harness.slots(), clock=clock).report().routes

    assert (route.state, route.error_class, route.since, route.allowed) == (
        "open",
        "RATE",
        "1970-01-01T00:01:40Z",
        0,
    )


def test_a_bug_in_the_report_does_not_end_the_agent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug is logged, and the agent's next report comes a second later."""
    harness = SlotsHarness(routes(), ending(GOOD))
    clock = HandClock()
    made = reporter(harness, harness.slots(), clock=clock)
    reports: Iterator[AgentReport | BaseException] = iter(
        [ZeroDivisionError("no report"), AgentReport(), asyncio.CancelledError()]
    )

    def report(_self: Reporter) -> AgentReport:
        value = next(reports)
        if isinstance(value, AgentReport):
            return value
        raise value

    monkeypatch.setattr(Reporter, "report", report)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(made.run())

    assert made.latest.get() == AgentReport(loop_age_s=1.0)
    assert "the agent's report fails (ZeroDivisionError: no report)" in caplog.text


def test_at_most_twenty_routes_are_named() -> None:
    """The other routes are counted; routes that take calls and are idle are not mentioned."""
    table, clock = routes(), HandClock()
    harness = SlotsHarness(table, ending(GOOD))
    for number in range(23):
        paused(table, snoozed("RATE"), 1000.0, f"m{number:02}")
    call(table, GOOD, 1000.0, name="well")

    report = reporter(harness, harness.slots(), clock=clock).report()

    assert [route.name for route in report.routes] == [f"m{number:02}" for number in range(20)]
    assert report.routes_left_out == 3
    assert report.reasons[-1] == Reason(Code.ROUTES_LEFT_OUT, count=18)
