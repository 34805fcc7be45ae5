"""Builds this agent's report each second, in the main loop.

If the report is old, the main loop is blocked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.slots import Slots
from docllm.agent.ports import Clock, Source
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.schemas.agent_report import MAX_ROUTES, AgentReport, Reason
from docllm.schemas.codes import Code
from docllm.schemas.runtime.outage import DUTY, Outage
from docllm.schemas.task.record.topics import Topics

EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class Reporter:
    """Reports what one agent does.

    `form` is a report with what seldom changes: versions and settings.
    """

    form: AgentReport
    latest: LatestReport
    admission: Admission
    slots: Slots
    locks: ResourceLocks
    routes: Router
    sources: Sequence[Source]
    topics: Topics
    counts: Counts
    clock: Clock
    _trouble: Outage = field(init=False)

    def __post_init__(self) -> None:
        self._trouble = Outage(
            name="the agent's report", clock=self.clock, words=DUTY, patience_s=0
        )

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            try:
                self.latest.put(self.report())
            except Exception as error:  # noqa: BLE001 - an agent must not end because of its report
                self._trouble.failed(f"{type(error).__name__}: {error}")
            else:
                self._trouble.answered()
            await self.clock.sleep(EVERY_S)

    def report(self) -> AgentReport:
        """Return what this agent does now."""
        now_s, busy = self.clock.now_s(), dict(self.admission.busy_routes())
        routes = self.routes.reports(busy, now_s, self.clock.utc_s())
        return replace(
            self.form,
            slots=self.admission.slots,
            running=self.slots.running,
            draining=self.admission.leaving,
            busy=busy,
            routes=tuple(routes[:MAX_ROUTES]),
            routes_left_out=len(routes[MAX_ROUTES:]),
            lag=self._lag(),
            oldest_call=self.slots.oldest_call(),
            suspects=self.admission.suspects.reports,
            reasons=tuple(self._reasons(now_s)),
        )

    def _lag(self) -> dict[str, int]:
        """Return the records that wait, by destination: one source may read several topics."""
        topics = (item for source in self.sources for item in source.lag().items())
        return {self.topics.destination(topic): count for topic, count in topics if count}

    def _reasons(self, now_s: float) -> Iterator[Reason]:
        if self.counts.settings_refused:
            yield Reason(Code.SETTINGS_REFUSED, text=self.counts.settings_refused)
        for topic in sorted(self.counts.unknown_topics):
            yield Reason(Code.TOPIC_UNKNOWN, topic)
        for topic, text in self.counts.changed_topics.items():
            yield Reason(Code.TOPIC_CHANGED, topic, text=text)
        yield from self.admission.reasons(now_s)
        yield from self.locks.reasons(now_s)
