"""The dispatcher: takes records from the sources, and finishes them once they are settled.

All of it runs in the event loop's thread. Only `done`, `stale`, quarantine or an accepted settle
finishes a record and lets its partition's watermark move.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.execution.settler import Settled
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import (
    Assigned,
    Clock,
    Event,
    Record,
    Recreated,
    RejectedRecord,
    Revoked,
    SourceFailed,
    Verdict,
)
from docllm.agent.ports.outcome import Outcome, Released, Snooze, Succeeded
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)

DELAY_SPREAD_S = 15.0
_CLAIMED = {
    DeliveryState.CLAIMING,
    DeliveryState.CLAIMED,
    DeliveryState.RUNNING,
    DeliveryState.SETTLING,
}


@dataclass(kw_only=True, eq=False)
class Dispatcher:
    """The first and the last step of a record in this agent."""

    partitions: Partitions
    decoder: RecordDecoder
    table: InFlightTable
    quarantine: QuarantineQueue
    backpressure: Backpressure
    finisher: RecordFinisher
    dropped_answers: DroppedAnswers
    wakeups: Wakeups
    clock: Clock
    counts: Counts
    lost_records: asyncio.Event
    failures: Failures

    # ---- events of the sources

    def deliver(self, event: Event) -> None:
        """Handle an event of a source."""
        match event:
            case list():
                for record in event:
                    self._arrive(record)
                self.backpressure.update()
            case Assigned(partitions):
                self.partitions.assign(partitions)
                self.backpressure.update()
            case Revoked(partitions):
                self._drop(self.partitions.revoke(partitions))
            case Recreated(topic, known):
                self.counts.topic(topic, known=known)
                if known:
                    self.lost_records.set()
            case SourceFailed():
                self._source_failed(event)
        self.wakeups.set()

    def _source_failed(self, failed: SourceFailed) -> None:
        log.warning("%s", failed.reason, extra={"code": Code.RECORDS_UNREAD})
        if failed.rewound:
            self.lost_records.set()
        if failed.fatal:
            self.failures.report(failed.reason)

    def _arrive(self, record: Record) -> None:
        if not self.partitions.begin(record.partition, record.offset):
            return
        delivery = self.decoder.read(record)
        if isinstance(delivery, RejectedRecord):
            self.quarantine.put(delivery, record)
        elif not self.quarantine.quarantine_if_foreign(delivery, record):
            self.partitions.keep(delivery)
            self.table.add(
                delivery,
                self.clock.now_s(),
                redelivered=self.partitions.redelivered(record.partition),
            )

    def _drop(self, deliveries: Iterable[Delivery]) -> None:
        """Forget the deliveries of a revoked partition.

        Claimed deliveries keep running under their leases; only their offsets are ignored. Those
        that wait for a slot are given back at the next tick.
        """
        dropped = [delivery for delivery in deliveries if delivery.state not in _CLAIMED]
        self.dropped_answers.add(sum(delivery.kept_answer is not None for delivery in dropped))
        for delivery in dropped:
            self.table.remove(delivery)
        self.table.ready.drop_unready()

    # ---- after the settle

    def take_verdicts(self, page: Iterable[Settled]) -> None:
        """Take the ledger's verdicts about a page of outcomes; only now may offsets move."""
        for settled in page:
            delivery, outcome, verdict = settled.delivery, settled.outcome, settled.verdict
            if delivery.lease is not None:
                delivery.lease.running -= 1
            delivery.owner, delivery.lease = 0, None
            self.counts.note(outcome, verdict)
            self._follow_verdict(delivery, outcome, verdict)
        self.finisher.advance()

    def _follow_verdict(self, delivery: Delivery, outcome: Outcome, verdict: Verdict) -> None:
        """Finish the record, delay it, or ask the ledger about it again.

        A record whose partition was revoked is forgotten, with its paid answer. Else the first
        line that fits decides:

            verdict     outcome                what happens to the record
            SUPERSEDED  Succeeded              asked about again; the paid answer is kept
            SUPERSEDED  any other              asked about again
            GIVEN_UP    any                    delayed for 1 to 15 s
            REOPENED    any                    asked about again
            SETTLED     Released, a suspect    delayed for 1 to 15 s
            SETTLED     Released               asked about again
            SETTLED     Snooze                 delayed as long as the outcome says; an answer that
                                               could not be written is kept
            SETTLED     Retry, Moved           finished; another one comes from the outcome's tier
            HELD_BACK   any                    finished; another one comes from the longest tier
            RETRIED     any                    finished; another one comes from the longest tier
            any other   any other              finished; the task is final
        """
        is_known = delivery.partition in self.partitions
        if verdict is Verdict.SETTLED and type(outcome) is Succeeded and is_known:
            self.finisher.finish_with_copies(delivery, delivery.row.fence if delivery.row else -1)
            return
        accepted_as = outcome if verdict is Verdict.SETTLED else None
        if not is_known:
            # A drain may release a delivery while its kept answer is written.
            kept = delivery.kept_answer if isinstance(outcome, Released) else None
            self.dropped_answers.add((_unstored_answer(outcome, verdict) or kept) is not None)
            self.table.remove(delivery)
        elif verdict is Verdict.SUPERSEDED:
            self._superseded(delivery, outcome)
        elif verdict is Verdict.GIVEN_UP or (
            isinstance(accepted_as, Released) and delivery.suspect
        ):
            # The delay depends on the task's id, so that not all deliveries come back at once.
            self.table.delay(delivery, self.clock.now_s() + 1 + delivery.task_id % DELAY_SPREAD_S)
        elif isinstance(accepted_as, Snooze):
            delivery.snoozes += 1
            self._keep(delivery, _unstored_answer(outcome, verdict))
            self.table.delay(delivery, self.clock.now_s() + accepted_as.delay_s)
        elif isinstance(accepted_as, Released) or verdict is Verdict.REOPENED:
            self.table.queue_for_question(delivery)
        else:
            self.finisher.finish_with_copies(
                delivery, -1 if delivery.row is None else delivery.row.fence
            )

    def _superseded(self, delivery: Delivery, outcome: Outcome) -> None:
        """Ask about the record again, because another claim has its task; keep a paid answer."""
        self._keep(delivery, _unstored_answer(outcome, Verdict.SUPERSEDED))
        self.table.queue_for_question(delivery)

    def _keep(self, delivery: Delivery, answer: Succeeded | None) -> None:
        if answer is not None:
            self.dropped_answers.add(self.table.kept_answers.keep(delivery, answer))

    def log_dropped_answers(self) -> None:
        """Log the dropped answers that no line has counted; called when the agent ends."""
        self.dropped_answers.log_rest()


def _unstored_answer(outcome: Outcome, verdict: Verdict) -> Succeeded | None:
    """Return the paid answer that an outcome has and its settle did not store, if there is one."""
    answer = outcome.answer if isinstance(outcome, Snooze) else outcome
    if not isinstance(answer, Succeeded):
        return None
    if verdict is Verdict.SUPERSEDED:
        return replace(answer, spent=outcome.spent)  # its costs were not booked with this end
    return answer if verdict is Verdict.SETTLED and answer is not outcome else None
