"""What becomes of a record once its outcome is settled."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.dispatch.record_finisher import Wakeups
from agent.inflight.decoder import RecordDecoder
from agent.inflight.delivery import DeliveryState
from agent.inflight.limits import InFlightLimits
from agent.inflight.partitions import Partitions
from agent.lease import Lease, Leases
from agent.outcome import (
    Cancelled,
    Dead,
    Failure,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from agent.ports import Assigned, Ledger, Letters, Record, Source, Verdict
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.reporting.telemetry import Counts
from agent.wiring import core
from agent.wiring.core import Common, Dispatch
from producer.relay.publishing import Publishing
from schemas.runtime.clock import SystemClock
from schemas.task.failures import ErrorClass
from schemas.task.record.lanes import Lane
from tests.support.routes import routes
from tests.support.slots import LONGEST, PARTITION, SlotsHarness, claimed, ending

OFFSET = 7
FAILURE = Failure(ErrorClass.ROUTE, "closed")


@pytest.mark.parametrize(
    ("outcome", "verdict", "watermark", "counted"),
    [
        (Cancelled(), Verdict.SETTLED, {("g.tasks", 0): OFFSET + 1}, "cancelled"),
        (Cancelled(), Verdict.REOPENED, {("g.tasks", 0): OFFSET}, "released"),
        (Released(), Verdict.SETTLED, {("g.tasks", 0): OFFSET}, "released"),
    ],
)
def test_a_task_that_waits_again_keeps_its_record(
    outcome: Outcome, verdict: Verdict, watermark: Any, counted: str
) -> None:
    """A cancelled task's record is finished; a released task's record waits for a question.

    No offset passes the latter.
    """
    delivery, counts = claimed(OFFSET, 0.0), Counts()
    dispatch = dispatch_that_reads(delivery, counts)

    dispatch.dispatcher.finish([(delivery, outcome, verdict)])

    assert dispatch.partitions.marked() == watermark
    assert (delivery.state is DeliveryState.ASKING) is (counted == "released")
    assert getattr(counts, counted) == 1


@pytest.mark.parametrize(
    ("verdict", "outcome", "state"),
    [
        (Verdict.FENCED, Succeeded(b"{}", 0, Spent()), DeliveryState.ASKING),
        (Verdict.FENCED, Released(), DeliveryState.ASKING),
        (Verdict.FENCED, Dead(FAILURE, Spent()), DeliveryState.ASKING),
        (Verdict.GIVEN_UP, Dead(FAILURE, Spent()), DeliveryState.DELAYED),
        (Verdict.SETTLED, Snooze(FAILURE, Spent(), 5.0), DeliveryState.DELAYED),
        (Verdict.SETTLED, Released(), DeliveryState.ASKING),
        (Verdict.REOPENED, Cancelled(), DeliveryState.ASKING),
        (Verdict.CANCELLED, Snooze(FAILURE, Spent(), 86_400.0), DeliveryState.ENDED),
        (Verdict.CANCELLED, Released(), DeliveryState.ENDED),
        (Verdict.HELD_BACK, Dead(FAILURE, Spent()), DeliveryState.ENDED),
        (Verdict.HELD_BACK, Released(), DeliveryState.ENDED),
        (Verdict.RETRIED, Released(), DeliveryState.ENDED),
        (Verdict.RETRIED, Snooze(FAILURE, Spent(), 60.0), DeliveryState.ENDED),
        (Verdict.DIED, Snooze(FAILURE, Spent(), 60.0), DeliveryState.ENDED),
        (Verdict.SETTLED, Retry(FAILURE, Spent(), "30s", 30.0), DeliveryState.ENDED),
        (Verdict.SETTLED, Moved(FAILURE, Spent(), "1h", 3600.0), DeliveryState.ENDED),
        (Verdict.SETTLED, Dead(FAILURE, Spent()), DeliveryState.ENDED),
        (Verdict.SETTLED, Succeeded(b"{}", 0, Spent()), DeliveryState.ENDED),
    ],
)
def test_verdict_and_outcome_decide_what_happens_to_the_record(
    verdict: Verdict, outcome: Outcome, state: DeliveryState
) -> None:
    """The table in the dispatcher's code, line by line; only a finished record is passed."""
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts())

    dispatch.dispatcher.finish([(delivery, outcome, verdict)])

    watermark = OFFSET + 1 if state is DeliveryState.ENDED else OFFSET
    assert (delivery.state, dispatch.partitions.marked()) == (state, {("g.tasks", 0): watermark})


def test_a_fenced_answer_is_kept_for_the_next_claim_of_its_task() -> None:
    """The call was paid for; the offset does not move, and the ledger is asked once more."""
    delivery, counts = claimed(OFFSET, 0.0), Counts()
    dispatch = dispatch_that_reads(delivery, counts)
    answer = Succeeded(b"{}", 0, Spent())

    dispatch.dispatcher.finish([(delivery, answer, Verdict.FENCED)])

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert (delivery.state, delivery.kept_answer) == (DeliveryState.ASKING, answer)


@pytest.mark.parametrize("verdict", [Verdict.SETTLED, Verdict.FENCED])
def test_an_answer_that_could_not_be_written_is_kept(verdict: Verdict) -> None:
    """Its costs are booked once: with this end, or with the next one if this one is fenced."""
    delivery, booked = claimed(OFFSET, 0.0), Spent(call_id="c", cost_micro=7)
    dispatch = dispatch_that_reads(delivery, Counts())
    answer = Succeeded(b"{}", 0, Spent(call_id="c"), output_uri="s3://b/")
    outcome = Snooze(FAILURE, booked, 5.0, answer=answer)

    dispatch.dispatcher.finish([(delivery, outcome, verdict)])

    left = Spent(call_id="c") if verdict is Verdict.SETTLED else booked
    assert delivery.kept_answer == replace(answer, spent=left)
    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}


def test_a_row_that_cannot_be_written_is_asked_about_later() -> None:
    """The offset does not move, and the outcome is not kept."""
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts())

    dispatch.dispatcher.finish([(delivery, Succeeded(b"{}", 0, Spent()), Verdict.GIVEN_UP)])

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert (delivery.state, delivery.kept_answer) == (DeliveryState.DELAYED, None)


def test_a_released_suspect_is_not_claimed_again_at_once() -> None:
    """A crash suspect that was given back is not claimed again at once.

    There was no slot for it. Claimed again and again, it would be lost with the agent that another
    suspect kills.
    """
    delivery = claimed(OFFSET, 0.0, lease_losses=2)
    dispatch = dispatch_that_reads(delivery, Counts())

    dispatch.dispatcher.finish([(delivery, Released(), Verdict.SETTLED)])

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert delivery.state is DeliveryState.DELAYED


def dispatch_that_reads(delivery: Any, counts: Counts) -> Dispatch:
    """Return the parts of a dispatcher that has read one record, which became this delivery."""
    slots = SlotsHarness(routes(), ending(Released())).slots()
    dispatch = core.dispatch(
        Common(
            ledger=cast("Ledger", None),
            letters=cast("Letters", None),
            leases=cast("Leases", SimpleNamespace(current=Lease(1, 0.0))),
            publishing=cast("Publishing", None),
            wakeups=Wakeups(),
            lost_records=asyncio.Event(),
            failures=Failures(),
            memory=cast("MemoryWatch", None),
            clock=SystemClock(),
            counts=counts,
            limits=InFlightLimits(),
            longest_tier=LONGEST,
            claim_s=600.0,
        ),
        partitions=Partitions(
            {
                PARTITION.topic: cast(
                    "Source", SimpleNamespace(mark=lambda *_: None, pause=lambda *_: None)
                )
            },
            limits=InFlightLimits(),
        ),
        decoder=cast("RecordDecoder", SimpleNamespace(read=lambda _record: delivery)),
        admission=slots._admission,
        slots=slots,
        lanes={PARTITION.topic: Lane.NORMAL},
        weight_of=lambda _tenant: 1.0,
        is_apart=lambda _type: False,
    )
    dispatch.dispatcher.deliver(Assigned((PARTITION,)))
    dispatch.dispatcher.deliver([Record(PARTITION, OFFSET, 0, b"key", b"{}", [])])
    return dispatch
