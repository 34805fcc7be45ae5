"""The newest report of this agent, passed from the main loop to the heartbeat's thread."""

from dataclasses import replace

from schemas.runtime.clock import Clock
from schemas.task.agent_report import AgentReport, to_json


class LatestReport:
    """Holds one immutable report; the main loop replaces it, any thread reads it."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._built: tuple[AgentReport, float] | None = None

    def put(self, report: AgentReport) -> None:
        """Replace the report by one that was built now."""
        self._built = report, self._clock.now_s()

    def get(self) -> AgentReport | None:
        """Return the report with its present age; None before the first one."""
        if self._built is None:
            return None
        report, built_s = self._built
        return replace(report, loop_age_s=round(max(0.0, self._clock.now_s() - built_s), 1))

    def json(self) -> str:
        """Return the report as it is stored; empty before the first one."""
        report = self.get()
        return "" if report is None else to_json(report)
