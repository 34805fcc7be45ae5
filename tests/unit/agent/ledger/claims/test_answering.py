"""The answers of a claim, as a table over every state, owner, fence and time."""

import itertools

import pytest

from docllm.agent.ledger.claims.claiming import FENCE_LEAP, answer
from docllm.agent.ports import Claimable, ClaimAnswer
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.states import FINAL, WAITING, Status
from tests.support.ledger import new_row

MINE, OTHER = 77, 88
DIGEST = b"d" * 16


def said(
    status: Status,
    *,
    owner: int = 0,
    fence: int = 5,
    record_fence: int = 5,
    due_in_s: float = -1.0,
    asker: int = MINE,
    stamp: bytes | None = None,
) -> ClaimAnswer:
    row = new_row(
        task_id=1, status=int(status), owner=owner, fence=fence, due_in_s=due_in_s, task_key=b"key"
    )
    return answer(
        Claimable(
            Publication(
                ledger="ledger", group="group", batch="batch", task_id=1, fence=record_fence
            ),
            stamp,
        ),
        row,
        DIGEST,
        owner=asker,
    )


@pytest.mark.parametrize("status", FINAL)
@pytest.mark.parametrize("record_fence", [4, 5, 6])
@pytest.mark.parametrize("asker", [0, MINE])
def test_a_final_task_is_done_for_everybody(status: Status, record_fence: int, asker: int) -> None:
    """A final task is done, whoever asks with whatever record."""
    assert said(status, record_fence=record_fence, asker=asker) is ClaimAnswer.DONE


def test_a_task_in_my_claim_is_claimed_for_me_alone() -> None:
    """Another owner gets HELD, and so does a question."""
    assert said(Status.PROCESSING, owner=MINE) is ClaimAnswer.CLAIMED
    assert said(Status.PROCESSING, owner=OTHER) is ClaimAnswer.HELD
    assert said(Status.PROCESSING, owner=MINE, asker=0) is ClaimAnswer.HELD


def test_nobody_owns_an_unclaimed_task() -> None:
    """Owner 0 owns nothing: a question with owner 0 does not own an unclaimed task."""
    assert said(Status.PROCESSING, owner=0, asker=0) is ClaimAnswer.HELD
    assert said(Status.PENDING, owner=0, asker=0) is ClaimAnswer.CLAIMABLE


@pytest.mark.parametrize("status", [*WAITING, Status.PROCESSING])
def test_an_older_record_is_stale(status: Status) -> None:
    """A record behind the row's fence is finished, unless its task is claimed by the asker."""
    assert said(status, owner=OTHER, record_fence=4) is ClaimAnswer.STALE
    assert said(Status.PROCESSING, owner=MINE, record_fence=4) is ClaimAnswer.CLAIMED


@pytest.mark.parametrize("status", WAITING)
def test_a_waiting_task_is_early_until_it_is_due(status: Status) -> None:
    """A waiting task is early before its due time.

    Afterwards a question finds it claimable, and a claim that missed it asks again.
    """
    assert said(status, due_in_s=0.5) is ClaimAnswer.EARLY
    assert said(status, due_in_s=-0.5, asker=0) is ClaimAnswer.CLAIMABLE
    assert said(status, due_in_s=-0.5) is ClaimAnswer.AGAIN
    assert said(status, due_in_s=0.5, record_fence=4) is ClaimAnswer.STALE


@pytest.mark.parametrize("status", Status)
def test_another_content_is_a_conflict_in_every_state(status: Status) -> None:
    """The digest is compared first. A record without a body is not compared again."""
    assert said(status, owner=MINE, stamp=b"x" * 16) is ClaimAnswer.CONFLICT
    assert said(status, owner=MINE, stamp=DIGEST) is not ClaimAnswer.CONFLICT
    assert said(status, owner=MINE) is not ClaimAnswer.CONFLICT


@pytest.mark.parametrize("status", Status)
def test_a_fence_too_far_ahead_is_a_conflict(status: Status) -> None:
    """A ledger that lost its last transactions is a little behind its records, not 1,000 fences."""
    assert said(status, owner=MINE, record_fence=5 + FENCE_LEAP) is not ClaimAnswer.CONFLICT
    assert said(status, owner=MINE, record_fence=6 + FENCE_LEAP) is ClaimAnswer.CONFLICT


def test_only_final_and_stale_records_are_finished_with() -> None:
    """Over all combinations, an answer is done or stale only if task or fence has moved on.

    The task is final then, or its fence is higher than the record's.
    """
    for status, owner, record_fence, due_in_s, asker in itertools.product(
        Status, (0, MINE, OTHER), (4, 5, 6), (-1.0, 1.0), (0, MINE)
    ):
        result = said(
            status, owner=owner, record_fence=record_fence, due_in_s=due_in_s, asker=asker
        )
        finished = result in {ClaimAnswer.DONE, ClaimAnswer.STALE}
        held_by_me = status is Status.PROCESSING and owner == asker == MINE
        assert finished == (status in FINAL or (record_fence < 5 and not held_by_me))
        assert (result is ClaimAnswer.CLAIMED) == held_by_me
