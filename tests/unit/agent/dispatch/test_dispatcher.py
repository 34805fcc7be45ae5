"""What becomes of a record once its outcome is settled."""

from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec

import pytest

from docllm.agent.execution.settler import Settled
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.ports import Record, Revoked, Verdict
from docllm.agent.ports.outcome import (
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
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes.names import RouteNames
from docllm.agent.wiring.record_path import RecordPath
from docllm.schemas.settings.config import Config
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import WaitReason
from tests.support.dispatch import DispatchHarness
from tests.support.slots import PARTITION, claimed

OFFSET = 7
FAILURE = Failure(ErrorClass.ROUTE, "closed")
ANSWER = Succeeded(b"{}", 0, Spent(), output_uri="s3://b/")
UNWRITTEN = Snooze(FAILURE, Spent(), 5.0, answer=ANSWER)


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

    dispatch.dispatcher.take_verdicts([Settled(delivery, outcome, verdict)])

    assert dispatch.partitions.marked() == watermark
    assert (delivery.state is DeliveryState.ASKING) is (counted == "released")
    assert getattr(counts, counted) == 1


@pytest.mark.parametrize(
    ("verdict", "outcome", "state"),
    [
        (Verdict.SUPERSEDED, Succeeded(b"{}", 0, Spent()), DeliveryState.ASKING),
        (Verdict.SUPERSEDED, Released(), DeliveryState.ASKING),
        (Verdict.SUPERSEDED, Dead(FAILURE, Spent()), DeliveryState.ASKING),
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
        (Verdict.SETTLED, Moved(FAILURE, Spent(), 3600.0, WaitReason.TIME), DeliveryState.ENDED),
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

    dispatch.dispatcher.take_verdicts([Settled(delivery, outcome, verdict)])

    watermark = OFFSET + 1 if state is DeliveryState.ENDED else OFFSET
    assert (delivery.state, dispatch.partitions.marked()) == (state, {("g.tasks", 0): watermark})


def test_a_superseded_answer_is_kept_for_the_next_claim_of_its_task() -> None:
    """The call was paid for; the offset does not move, and the ledger is asked once more."""
    delivery, counts = claimed(OFFSET, 0.0), Counts()
    dispatch = dispatch_that_reads(delivery, counts)
    answer = Succeeded(b"{}", 0, Spent())

    dispatch.dispatcher.take_verdicts([Settled(delivery, answer, Verdict.SUPERSEDED)])

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert (delivery.state, delivery.kept_answer) == (DeliveryState.ASKING, answer)


@pytest.mark.parametrize("verdict", [Verdict.SETTLED, Verdict.SUPERSEDED])
def test_an_answer_that_could_not_be_written_is_kept(verdict: Verdict) -> None:
    """The answer's costs are booked once: with this end, or with the next if this is superseded."""
    delivery, booked = claimed(OFFSET, 0.0), Spent(call_id="c", cost_micro=7)
    dispatch = dispatch_that_reads(delivery, Counts())
    answer = Succeeded(b"{}", 0, Spent(call_id="c"), output_uri="s3://b/")
    outcome = Snooze(FAILURE, booked, 5.0, answer=answer)

    dispatch.dispatcher.take_verdicts([Settled(delivery, outcome, verdict)])

    left = Spent(call_id="c") if verdict is Verdict.SETTLED else booked
    assert delivery.kept_answer == replace(answer, spent=left)
    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}


@pytest.mark.parametrize(
    ("outcome", "verdict", "dropped"),
    [
        (UNWRITTEN, Verdict.SETTLED, 1),
        (UNWRITTEN, Verdict.SUPERSEDED, 1),
        (ANSWER, Verdict.SUPERSEDED, 1),
        (ANSWER, Verdict.SETTLED, 0),
        (Snooze(FAILURE, Spent(), 5.0), Verdict.SUPERSEDED, 0),
        (UNWRITTEN, Verdict.CANCELLED, 0),
    ],
)
@pytest.mark.parametrize("revoked_first", [False, True])
def test_a_paid_answer_that_goes_with_its_partition_is_logged(
    caplog: pytest.LogCaptureFixture,
    outcome: Outcome,
    verdict: Verdict,
    dropped: int,
    *,
    revoked_first: bool,
) -> None:
    """The call is made again, whether the partition is revoked before the settle or after it.

    A drain gives up all partitions before the running calls end.
    """
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts())
    revoked, settled = Revoked((PARTITION,), lost=False), [Settled(delivery, outcome, verdict)]

    if revoked_first:
        delivery.state = DeliveryState.SETTLING
        dispatch.dispatcher.deliver(revoked)
        assert not caplog.messages
    dispatch.dispatcher.take_verdicts(settled)
    if not revoked_first:
        dispatch.dispatcher.deliver(revoked)

    assert [text.partition(",")[0] for text in caplog.messages] == [
        "dropped 1 paid answer"
    ] * dropped
    assert delivery.state is DeliveryState.ENDED


def test_a_kept_answer_whose_write_a_drain_ends_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its delivery is released, but no other claim of this agent follows."""
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts())
    delivery.kept_answer, delivery.state = ANSWER, DeliveryState.SETTLING
    dispatch.dispatcher.deliver(Revoked((PARTITION,), lost=False))

    dispatch.dispatcher.take_verdicts([Settled(delivery, Released(), Verdict.SETTLED)])

    assert [text.partition(",")[0] for text in caplog.messages] == ["dropped 1 paid answer"]


def test_answers_that_are_too_many_to_keep_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Those that no line has counted are logged when the agent ends."""
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts(), limits=InFlightLimits(kept_answers=0))

    for _ in range(3):
        dispatch.dispatcher.take_verdicts([Settled(delivery, ANSWER, Verdict.SUPERSEDED)])
    dispatch.dispatcher.log_dropped_answers()

    texts = [text.partition(",")[0] for text in caplog.messages]
    assert texts == ["dropped 1 paid answer", "dropped 2 paid answers"]
    assert delivery.kept_answer is None


def test_a_row_that_cannot_be_written_is_asked_about_later() -> None:
    """The offset does not move, and the outcome is not kept."""
    delivery = claimed(OFFSET, 0.0)
    dispatch = dispatch_that_reads(delivery, Counts())

    dispatch.dispatcher.take_verdicts(
        [Settled(delivery, Succeeded(b"{}", 0, Spent()), Verdict.GIVEN_UP)]
    )

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert (delivery.state, delivery.kept_answer) == (DeliveryState.DELAYED, None)


def test_a_released_suspect_is_not_claimed_again_at_once() -> None:
    """A crash suspect that was given back is not claimed again at once.

    There was no slot for it. Claimed again and again, it would be lost with the agent that another
    suspect kills.
    """
    delivery = claimed(OFFSET, 0.0, lease_losses=2)
    dispatch = dispatch_that_reads(delivery, Counts())

    dispatch.dispatcher.take_verdicts([Settled(delivery, Released(), Verdict.SETTLED)])

    assert dispatch.partitions.marked() == {("g.tasks", 0): OFFSET}
    assert delivery.state is DeliveryState.DELAYED


def dispatch_that_reads(delivery: Delivery, counts: Counts, **parts: Any) -> RecordPath:
    """Return the parts of a dispatcher that has read one record, which became this delivery."""
    decoder = create_autospec(RecordDecoder, instance=True)
    decoder.read.return_value, decoder.naming = delivery, RouteNames(Config())
    dispatch = DispatchHarness(partition=PARTITION, decoder=decoder, counts=counts, **parts).parts
    dispatch.dispatcher.deliver(
        [
            Record(
                partition=PARTITION,
                offset=OFFSET,
                timestamp_ms=0,
                key=b"key",
                value=b"{}",
                headers=[],
            )
        ]
    )
    return dispatch
