"""Crash suspects: tasks over which agents were lost. They run one at a time, some of them alone."""

import logging

from agent.inflight.delivery import Delivery
from agent.reporting.telemetry import Counts

log = logging.getLogger(__name__)


class CrashSuspects:
    """Knows the crash suspect that runs in this agent, and names it in case it kills the agent."""

    def __init__(self, *, counts: Counts) -> None:
        self._counts = counts
        self._running: Delivery | None = None

    @property
    def alone(self) -> bool:
        """Return whether a suspect runs beside which no other task may start."""
        return self._running is not None and self._running.alone

    def may_run(self, delivery: Delivery) -> bool:
        """Return whether a delivery may run: of all suspects, only one at a time."""
        return not delivery.suspect or self._running in {None, delivery}

    def enter(self, delivery: Delivery) -> None:
        """Note that a delivery has a slot."""
        if delivery.suspect:
            self._running = delivery

    def leave(self, delivery: Delivery) -> None:
        """Note that a delivery has left its slot."""
        if self._running is delivery:
            self._running = None
            self._counts.say("suspect", "")

    def warn(self, delivery: Delivery) -> None:
        """Log which suspect runs, so that the log names it if it kills the process."""
        if delivery.row is None or not delivery.suspect:
            return
        where = "alone in its agent" if delivery.alone else "as the only suspect of its agent"
        text = (
            f"task {delivery.task_id} of batch {delivery.row.batch} runs {where}: "
            f"{delivery.row.lease_losses} agents were lost over it"
        )
        log.warning("%s", text)
        self._counts.say("suspect", text)
