"""The newest report of this agent, passed from the main loop to the heartbeat's thread."""

from collections.abc import Callable
from dataclasses import replace

from docllm.schemas.agent_report import AgentReport, BlockReport, to_json
from docllm.schemas.runtime.clock import Clock


class LatestReport:
    """Holds one immutable report; the main loop replaces it, any thread reads it.

    `blocked` returns what blocks the main loop, if anything does.
    """

    def __init__(
        self, *, clock: Clock, blocked: Callable[[], BlockReport | None] = lambda: None
    ) -> None:
        self._clock = clock
        self._blocked = blocked
        self._built: tuple[AgentReport, float] | None = None

    def put(self, report: AgentReport) -> None:
        """Replace the report by one that was built now."""
        self._built = report, self._clock.now_s()

    def get(self) -> AgentReport | None:
        """Return the report with its present age; None before the first report."""
        if self._built is None:
            return None
        report, built_s = self._built
        age_s = round(max(0.0, self._clock.now_s() - built_s), 1)
        return replace(report, loop_age_s=age_s, blocked_by=self._blocked())

    def json(self) -> str:
        """Return the report as it is stored; empty before the first one."""
        report = self.get()
        return "" if report is None else to_json(report)
