"""The HTTP pages for a cluster: `/livez`, `/readyz` and `/metrics`.

If `/livez` fails, the cluster restarts the agent, and the agent's running calls are paid for again.
So `/livez` depends on no server: a database outage must not fail it. It checks the heartbeat's
thread and the event loop watch, and works while the loop is blocked. `/readyz` is for people and
rollouts only, because agents receive no requests.
"""

from collections.abc import Callable
from dataclasses import dataclass

from docllm.agent.lease import Leases
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.metrics import CONTENT_TYPE, AgentMetrics
from docllm.producer.metrics.http_server import HttpAnswer, HttpPage, health
from docllm.schemas.runtime.clock import Clock

# After one step of a task has blocked the event loop for this long, `/livez` fails.
DEAD_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class Health:
    """The health of one agent; `beats` returns whether the heartbeat goes on."""

    beats: Callable[[], bool]
    leases: Leases
    latest: LatestReport
    clock: Clock

    def pages(self, metrics: AgentMetrics) -> dict[str, HttpPage]:
        """Return the pages of an agent, by path."""
        return {
            "/metrics": HttpPage(lambda: HttpAnswer(metrics.text(), content_type=CONTENT_TYPE)),
            "/livez": HttpPage(lambda: health(self.dead_because()), is_public=True),
            "/readyz": HttpPage(lambda: health(self.waits_because()), is_public=True),
        }

    def dead_because(self) -> str:
        """Return why the process must be started again; empty if it need not."""
        if not self.beats():
            return "the thread of the heartbeat has ended"
        report = self.latest.get()
        block = None if report is None else report.blocked_by
        if block is not None and block.blocked_s >= DEAD_S:
            return f"the event loop has been blocked for {block.blocked_s:.0f} s; see the log"
        return ""

    def waits_because(self) -> str:
        """Return why the agent starts no task; empty if it does."""
        if dead := self.dead_because():
            return dead
        report = self.latest.get()
        if report is None:
            return "the agent starts"
        if report.draining:
            return "the agent drains"
        if not self.leases.current.may_claim(self.clock.now_s()):
            return "the ledger does not take heartbeats"
        return ""
