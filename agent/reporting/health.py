"""The pages by which a cluster watches an agent: is it alive, does it take tasks, its metrics.

An agent that is called dead is started again, and repeats the calls that it had paid for. So
`/livez` asks no server: a database that is away is no reason. `/readyz` only tells people and
rollouts; nobody sends requests to an agent.
"""

from collections.abc import Callable

from agent.lease import Leases
from agent.reporting.latest_report import LatestReport
from agent.reporting.metrics import AgentMetrics
from producer.metrics.http_server import HttpAnswer, HttpPage, health
from schemas.runtime.clock import Clock


class Health:
    """The health of one agent; `beats` returns whether the heartbeat goes on."""

    def __init__(
        self, *, beats: Callable[[], bool], leases: Leases, latest: LatestReport, clock: Clock
    ) -> None:
        self._beats = beats
        self._leases = leases
        self._latest = latest
        self._clock = clock

    def pages(self, metrics: AgentMetrics) -> dict[str, HttpPage]:
        """Return the pages of an agent, by path."""
        return {
            "/metrics": HttpPage(lambda: HttpAnswer(metrics.text())),
            "/livez": HttpPage(lambda: health(self.dead_because()), is_open=True),
            "/readyz": HttpPage(lambda: health(self.waits_because()), is_open=True),
        }

    def dead_because(self) -> str:
        """Return why the process must be started again; empty if it need not."""
        return "" if self._beats() else "the thread of the heartbeat has ended"

    def waits_because(self) -> str:
        """Return why the agent starts no task; empty if it does."""
        if dead := self.dead_because():
            return dead
        report = self._latest.get()
        if report is None:
            return "the agent starts"
        if report.draining:
            return "the agent drains"
        if not self._leases.current.fresh(self._clock.now_s()):
            return "the ledger does not take heartbeats"
        return ""
