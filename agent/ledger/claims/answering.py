"""Decides the claim's answer about each record from the row that was read back. Pure."""

from docllm.agent.ports import Claimable, ClaimAnswer, Row
from docllm.schemas.task.states import FINAL, Status

# A record may be ahead of a ledger that lost its last transactions, but not by this much.
FENCE_LEAP = 1000


def answer(record: Claimable, row: Row, digest: bytes, *, owner: int) -> ClaimAnswer:
    """Return the answer for a record whose ledger and group are ours.

    `owner` is the owner number of the claim call; it is 0 for a query that claims nothing.
    """
    fence = record.publication.fence
    if (record.digest is not None and record.digest != digest) or fence > row.fence + FENCE_LEAP:
        return ClaimAnswer.CONFLICT
    if row.status == Status.PROCESSING:
        return _processing(row, fence, owner)
    if row.status in FINAL:
        return ClaimAnswer.DONE
    if row.fence > fence:
        return ClaimAnswer.STALE
    if row.due_in_s > 0:
        return ClaimAnswer.EARLY
    return ClaimAnswer.AGAIN if owner else ClaimAnswer.CLAIMABLE


def _processing(row: Row, fence: int, owner: int) -> ClaimAnswer:
    if owner and row.owner == owner:
        return ClaimAnswer.CLAIMED
    return ClaimAnswer.STALE if row.fence > fence else ClaimAnswer.HELD
