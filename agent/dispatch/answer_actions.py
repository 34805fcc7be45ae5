"""Handles the ledger's answer about a record: it decides the delivery's next step."""

from dataclasses import dataclass

from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import ClaimAnswer, Clock, Row
from docllm.schemas.task.owner import agent_of

AGAIN_AT_ONCE, MAX_AGAIN_S = 2, 15.0


@dataclass(kw_only=True, eq=False)
class AnswerActions:
    """Finishes, delays, queues or quarantines a delivery by the ledger's answer about it."""

    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    finisher: RecordFinisher
    dropped_answers: DroppedAnswers
    clock: Clock

    def apply(self, delivery: Delivery, answer: ClaimAnswer, row: Row | None) -> None:
        """Take an answer other than `CLAIMED`."""
        delivery.row = row
        now_s = self.clock.now_s()
        if row is not None and answer is not ClaimAnswer.CONFLICT:
            self.quarantine.quarantine_foreign_behind(delivery)
        if delivery.partition not in self.partitions:
            is_wanted = answer is not ClaimAnswer.DONE
            self.dropped_answers.add(is_wanted and delivery.kept_answer is not None)
            self.table.remove(delivery)
        elif answer in {ClaimAnswer.DONE, ClaimAnswer.STALE}:
            # The row of a DONE record is final, so copies up to its fence are done too. The row of
            # a STALE record has moved on, so only copies below its fence are stale too.
            self.finisher.finish_with_copies(
                delivery, -1 if row is None else row.fence - (answer is ClaimAnswer.STALE)
            )
        elif answer is ClaimAnswer.CLAIMABLE and row is not None:
            # A delivery that was delayed, is retried, or belonged to a lost agent goes ahead of
            # newer records.
            self.table.queue_for_claim(
                delivery,
                was_waiting=delivery.value is None
                or bool(row.lease_losses)
                or bool(row.counted_before),
            )
        elif answer is ClaimAnswer.HELD and row is not None:
            self.table.delay_while_held(delivery, agent_of(row.owner), now_s)
        elif answer is ClaimAnswer.EARLY and row is not None:
            self.table.delay(delivery, now_s + row.due_in_s)
        elif answer is ClaimAnswer.AGAIN:
            self._claim_again(delivery, now_s)
        else:
            self.quarantine.quarantine_unknown(delivery, answer, now_s)

    def _claim_again(self, delivery: Delivery, now_s: float) -> None:
        """Claim once more: the task was released between the two statements of the claim.

        The first AGAIN_AT_ONCE times, the delivery is ready immediately; after that, a growing
        delay applies.
        """
        delivery.ask_count += 1
        if delivery.ask_count <= AGAIN_AT_ONCE:
            self.table.queue_for_claim(delivery)
        else:
            delay_s = min(MAX_AGAIN_S, 2.0 ** (delivery.ask_count - AGAIN_AT_ONCE))
            self.table.delay(delivery, now_s + delay_s)
