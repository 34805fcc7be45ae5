"""The heartbeat's thread gets the main loop's newest report, with its age."""

from dataclasses import replace

from agent.reporting.latest_report import LatestReport
from schemas.task.agent_report import AgentReport, from_json
from tests.support.clock import HandClock


def test_a_report_grows_old_while_the_main_loop_is_blocked() -> None:
    """Nothing is reported before the first report, and a new one is fresh again."""
    clock = HandClock()
    latest, report = LatestReport(clock=clock), AgentReport(slots=8)
    assert (latest.get(), latest.json()) == (None, "")

    latest.put(report)
    assert latest.get() == report
    clock.at_s += 12.34

    assert from_json(latest.json()) == replace(report, loop_age_s=12.3)
    latest.put(report)
    assert latest.get() == report
