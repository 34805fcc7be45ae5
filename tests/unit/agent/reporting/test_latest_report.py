"""The heartbeat's thread gets the main loop's newest report, with its age."""

from dataclasses import replace

from docllm.agent.reporting.latest_report import LatestReport
from docllm.schemas.agent_report import AgentReport, BlockReport, from_json
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


def test_a_report_says_what_blocks_the_main_loop() -> None:
    """The loop itself cannot say so; whoever watches it does."""
    blocks = [
        BlockReport(
            task=7, batch="night", key="k", type="invoice", place="invoices.py:7", blocked_s=2.5
        )
    ]
    latest = LatestReport(clock=HandClock(), blocked=lambda: blocks[0] if blocks else None)
    latest.put(AgentReport())

    assert from_json(latest.json()) == AgentReport(blocked_by=blocks[0])
    blocks.clear()
    assert latest.get() == AgentReport()
