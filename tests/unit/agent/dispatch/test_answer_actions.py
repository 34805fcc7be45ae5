"""Each answer of the ledger has one consequence for the delivery."""

from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec

import pytest

from docllm.agent.dispatch.answer_actions import AGAIN_AT_ONCE, MAX_AGAIN_S, AnswerActions
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import ClaimAnswer
from docllm.agent.ports.outcome import Spent, Succeeded
from docllm.schemas.task.owner import owner_of
from tests.support.clock import HandClock
from tests.support.slots import PARTITION, claimed
from tests.support.source import FakeSource

NOW_S = HandClock().now_s()


class AnswerHarness:
    """A handler over a real table with one delivery of a partition that is ours, or not."""

    def __init__(self, *, ours: bool = True) -> None:
        self.table = InFlightTable(limits=InFlightLimits())
        self.finisher = create_autospec(RecordFinisher, instance=True)
        self.quarantine = create_autospec(QuarantineQueue, instance=True)
        partitions = Partitions({PARTITION.topic: FakeSource()}, limits=InFlightLimits())
        if ours:
            partitions.assign([PARTITION])
        self.delivery: Delivery = claimed(7, NOW_S)
        self.table.add(self.delivery, NOW_S, redelivered=True)
        self.answers = AnswerActions(
            partitions=partitions,
            table=self.table,
            quarantine=self.quarantine,
            finisher=self.finisher,
            dropped_answers=DroppedAnswers(HandClock()),
            clock=HandClock(),
        )

    def handle(self, answer: ClaimAnswer, **columns: Any) -> None:
        assert self.delivery.row is not None
        self.answers.apply(self.delivery, answer, replace(self.delivery.row, **columns))


@pytest.mark.parametrize(("answer", "fence"), [(ClaimAnswer.DONE, 2), (ClaimAnswer.STALE, 1)])
def test_a_record_that_is_over_is_finished(answer: ClaimAnswer, fence: int) -> None:
    """Copies up to the row's fence are over too; those of a stale record only below it."""
    harness = AnswerHarness()

    harness.handle(answer, fence=2)

    harness.finisher.finish_with_copies.assert_called_once_with(harness.delivery, fence)


def test_a_claimable_task_is_ready() -> None:
    harness = AnswerHarness()

    harness.handle(ClaimAnswer.CLAIMABLE)

    assert harness.delivery.state is DeliveryState.READY


def test_a_task_that_is_not_due_waits_until_it_is() -> None:
    harness = AnswerHarness()

    harness.handle(ClaimAnswer.EARLY, due_in_s=30.0)

    assert harness.table.delayed.take_due(NOW_S + 29.9, 1) == []
    assert harness.table.delayed.take_due(NOW_S + 30.0, 1) == [harness.delivery]


def test_a_task_of_another_agent_waits_until_that_agent_is_gone() -> None:
    harness = AnswerHarness()

    harness.handle(ClaimAnswer.HELD, owner=owner_of(5, 1))

    assert (harness.table.delayed.wake({4}, NOW_S), harness.table.delayed.wake({5}, NOW_S)) == (
        0,
        1,
    )


def test_a_task_that_was_released_meanwhile_is_claimed_again() -> None:
    """The task is ready at once a few times, then after a growing delay, so that no loop spins."""
    harness = AnswerHarness()
    states, dues_s = [], []

    for _ in range(AGAIN_AT_ONCE + 6):
        harness.handle(ClaimAnswer.AGAIN)
        states.append(harness.delivery.state)
        dues_s.append(harness.delivery.wake_at_s - NOW_S)

    assert states[:AGAIN_AT_ONCE] == [DeliveryState.READY] * AGAIN_AT_ONCE
    assert dues_s[AGAIN_AT_ONCE:] == [2.0, 4.0, 8.0, *[MAX_AGAIN_S] * 3]


@pytest.mark.parametrize("answer", [ClaimAnswer.UNKNOWN, ClaimAnswer.CONFLICT])
def test_a_record_of_no_known_task_is_quarantined(answer: ClaimAnswer) -> None:
    harness = AnswerHarness()

    harness.handle(answer)

    harness.quarantine.quarantine_unknown.assert_called_once_with(harness.delivery, answer, NOW_S)


def test_a_delivery_of_a_partition_that_was_lost_ends() -> None:
    """The partition's new owner finishes the record."""
    harness = AnswerHarness(ours=False)

    harness.handle(ClaimAnswer.DONE)

    harness.finisher.finish_with_copies.assert_not_called()
    assert harness.delivery.state is DeliveryState.ENDED


@pytest.mark.parametrize(("answer", "lines"), [(ClaimAnswer.HELD, 1), (ClaimAnswer.DONE, 0)])
def test_a_paid_answer_of_a_partition_that_was_lost_is_logged(
    caplog: pytest.LogCaptureFixture, answer: ClaimAnswer, lines: int
) -> None:
    """Its call is made again, unless the task is done."""
    harness = AnswerHarness(ours=False)
    harness.table.kept_answers.keep(harness.delivery, Succeeded(b"{}", 0, Spent()))

    harness.handle(answer)

    assert len(caplog.messages) == lines
