"""Crash suspects: tasks over which two agents or more were lost.

Only one runs at a time.
"""

import logging

from docllm.agent.inflight.delivery import Delivery
from docllm.producer.text.agent_sentences import suspect_text
from docllm.schemas.agent_report import SuspectReport
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)


class CrashSuspects:
    """Tracks this agent's running crash suspect, and logs its name in case it kills the agent."""

    def __init__(self) -> None:
        self._running: Delivery | None = None

    @property
    def is_running(self) -> bool:
        """Whether a suspect runs."""
        return self._running is not None

    @property
    def runs_alone(self) -> bool:
        """Whether a suspect runs beside which no other task may start."""
        return self._running is not None and self._running.runs_alone

    @property
    def reports(self) -> tuple[SuspectReport, ...]:
        """The suspect that runs, for the agent's report."""
        return () if self._running is None else _reports(self._running)

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

    def warn(self, delivery: Delivery) -> None:
        """Log which suspect runs, so that the log names it if it kills the process."""
        if delivery.suspect:
            for suspect in _reports(delivery):
                log.warning("%s", suspect_text(suspect), extra={"code": Code.SUSPECT_RUNS})


def _reports(delivery: Delivery) -> tuple[SuspectReport, ...]:
    row = delivery.row
    if row is None:
        return ()
    return (
        SuspectReport(
            delivery.task_id, row.batch, row.key_text, row.lease_losses, delivery.runs_alone
        ),
    )
