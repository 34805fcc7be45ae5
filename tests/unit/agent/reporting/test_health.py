"""Health: an agent is dead only if it cannot recover, and ready while it starts tasks."""

from dataclasses import replace

import pytest

from docllm.agent.lease import Lease
from docllm.agent.reporting.health import DEAD_S, Health
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.schemas.agent_report import AgentReport, BlockReport
from tests.support.clock import HandClock
from tests.support.slots import OneLease


class Watched:
    """An agent with health pages."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.beats = True
        self.lease = Lease(1, self.clock.now_s())
        self.block: BlockReport | None = None
        self.latest = LatestReport(clock=self.clock, blocked=lambda: self.block)
        self.health = Health(
            beats=lambda: self.beats,
            leases=OneLease(self.lease),
            latest=self.latest,
            clock=self.clock,
        )

    def status(self, path: str) -> int:
        metrics = AgentMetrics(group="g", routes=[], counters=[], gauges=[])
        return int(self.health.pages(metrics)[path].answer().status)


def test_an_agent_is_ready_once_it_has_reported() -> None:
    """An agent that has not reported yet is still starting."""
    agent = Watched()
    assert (agent.status("/livez"), agent.status("/readyz")) == (200, 503)
    agent.latest.put(AgentReport())
    assert (agent.status("/livez"), agent.status("/readyz")) == (200, 200)


@pytest.mark.parametrize("trouble", ["drains", "ledger"])
def test_what_ends_by_itself_restarts_nobody(trouble: str) -> None:
    """A restart would repeat the calls that are paid for."""
    agent = Watched()
    agent.latest.put(AgentReport(draining=trouble == "drains"))
    if trouble == "ledger":
        agent.clock.at_s += 600
    assert (agent.status("/livez"), agent.status("/readyz")) == (200, 503)
    assert trouble in agent.health.waits_because()


def test_an_agent_without_heartbeat_is_dead() -> None:
    """Nothing but a new process helps."""
    agent = Watched()
    agent.latest.put(AgentReport())
    agent.beats = False
    assert (agent.status("/livez"), agent.status("/readyz")) == (503, 503)


def test_an_event_loop_that_is_blocked_for_a_minute_is_dead() -> None:
    """No task can end then; a shorter block is named by `status`, and costs nobody his calls."""
    agent, block = Watched(), BlockReport(task=7, batch="secret", place="a.py:3")
    for blocked_s, status in ((DEAD_S - 1, 200), (DEAD_S, 503)):
        agent.block = replace(block, blocked_s=blocked_s)
        agent.latest.put(AgentReport())
        assert agent.status("/livez") == status
    assert agent.health.dead_because() == ("the event loop has been blocked for 60 s; see the log")


def test_metrics_name_their_version() -> None:
    """Prometheus chooses its parser by it."""
    metrics = AgentMetrics(group="g", routes=[], counters=[], gauges=[])
    answer = Watched().health.pages(metrics)["/metrics"].answer()
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"


def test_only_health_is_open() -> None:
    """Metrics need the token where others reach the address."""
    pages = Watched().health.pages(AgentMetrics(group="g", routes=[], counters=[], gauges=[]))
    assert {path for path, page in pages.items() if page.is_public} == {"/livez", "/readyz"}
