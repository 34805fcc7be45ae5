"""Many records of one task: one answer suffices for all copies, and for no other record."""

import asyncio
from dataclasses import replace

import pytest

from docllm.agent.execution.settler import Settled
from docllm.agent.ports import ClaimAnswer, Verdict
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.states import Status
from tests.support.dispatch import harness_after
from tests.support.ledger import new_row

FAILURE = Failure(ErrorClass.SERVER, "500")
ROW = new_row(status=Status.SUCCEEDED, fence=2)


@pytest.mark.parametrize(
    ("answer", "fences", "unfinished"),
    [
        (ClaimAnswer.DONE, [2, 2, 2, 2], 0),
        (ClaimAnswer.DONE, [1, 2, 1, 0], 0),
        (ClaimAnswer.DONE, [9, 2, 3, 2], 1),
        (ClaimAnswer.STALE, [1, 1, 0, 1], 0),
        (ClaimAnswer.STALE, [1, 1, 2, 1], 1),
        (ClaimAnswer.STALE, [1, 3], 1),
    ],
)
def test_one_answer_ends_the_copies_that_it_is_true_of(
    answer: ClaimAnswer, fences: list[int], unfinished: int
) -> None:
    """One answer ends copies up to the ledger's fence; a record's own header may say anything."""
    harness, first = harness_after(fences)

    harness.parts.answers.apply(first, answer, ROW)

    assert harness.unfinished == unfinished


def test_a_record_with_other_bytes_is_quarantined() -> None:
    """A record with other bytes is quarantined; the copies behind it end with the first."""
    harness, first = harness_after([2, 2, 2], forged=[1])

    harness.parts.answers.apply(first, ClaimAnswer.DONE, ROW)

    assert (harness.unfinished, len(harness.parts.quarantine)) == (1, 1)
    assert harness.parts.table.take_to_ask(0.0, 10) == []


def test_a_task_that_is_archived_has_no_fence_to_compare() -> None:
    """An archived task has no fence to compare, so the ledger is asked about each record."""
    harness, first = harness_after([0, 0])

    harness.parts.answers.apply(first, ClaimAnswer.DONE, None)

    assert harness.unfinished == 1


@pytest.mark.parametrize(
    ("outcome", "verdict", "unfinished"),
    [
        (Succeeded(b"", COMPLETION, Spent()), Verdict.SETTLED, 1),
        (Dead(FAILURE, Spent()), Verdict.SETTLED, 1),
        (Dead(FAILURE, Spent(), Disposition.EXHAUSTED), Verdict.HELD_BACK, 1),
        (Retry(FAILURE, Spent(), "30s", 30.0), Verdict.SETTLED, 1),
        (Succeeded(b"", COMPLETION, Spent()), Verdict.SUPERSEDED, 4),
        (Succeeded(b"", COMPLETION, Spent()), Verdict.GIVEN_UP, 4),
        (Snooze(FAILURE, Spent(), 1.0), Verdict.SETTLED, 4),
        (Released(), Verdict.SETTLED, 4),
    ],
)
def test_an_accepted_settle_ends_the_copies_of_its_claim(
    outcome: Outcome, verdict: Verdict, unfinished: int
) -> None:
    """A settle ends the copies of its claim, but not the next attempt's record.

    That record has the next fence and may be there already. The first record's own header is ahead
    of its row.
    """
    harness, first = harness_after([500, 2, 1, 3])
    first.row = replace(ROW, status=Status.PROCESSING)

    harness.parts.dispatcher.take_verdicts([Settled(first, outcome, verdict)])

    assert harness.unfinished == unfinished


def test_thousands_of_copies_take_one_question() -> None:
    """Thousands of copies take one question.

    Each used to take its own, one after another, and each searched through all the others.
    """
    harness, first = harness_after([2] * 3000)
    harness.ledger.answers[first.task_id] = (ClaimAnswer.DONE, ROW)

    asyncio.run(harness.parts.claimer.ask([first]))

    assert (harness.ledger.questions, harness.unfinished, harness.parts.partitions.marked()) == (
        [1],
        0,
        {("group.tasks", 0): 3000},
    )
    assert harness.parts.table._by_task == harness.parts.table.behind.by_task == {}
