"""Limits the ends that count as no attempt although they may have been paid for.

These ends are bugs of docllm (`INTERNAL`), releases after a call, and waits that took too long
after a call. If they never counted, a task that always ends this way would be paid for without
limit.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, and_, bindparam, or_, select

from docllm.agent.judge import Tier
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import (
    Cancelled,
    Dead,
    Failure,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
)
from docllm.schemas.codes import Code
from docllm.schemas.ledger.tables import task_attempt
from docllm.schemas.task.failures import AttemptOutcome, Disposition, ErrorClass

log = logging.getLogger(__name__)

FREE_ENDS = 3
RELEASED = Failure(
    ErrorClass.RELEASED, "given back after a call: its agent drained, or lost its lease"
)
CANCELLED = Failure(ErrorClass.CANCELLED, "its batch was cancelled during the attempt")

_FORMER = (
    select(task_attempt.c.task_id)
    .where(task_attempt.c.task_id.in_(bindparam("ids", expanding=True)))
    .where(
        or_(
            task_attempt.c.outcome == AttemptOutcome.RELEASED,
            and_(
                task_attempt.c.outcome == AttemptOutcome.SNOOZE,
                task_attempt.c.error_class.in_((ErrorClass.INTERNAL, ErrorClass.COME_BACK)),
            ),
        )
    )
)


def count_repeated_ends(
    connection: Connection, accepted: Sequence[Settlement], longest: Tier
) -> Sequence[Settlement]:
    """Return the settlements; from a task's fourth free end on they become counted failures.

    Such a task waits in the longest tier, or is dead when its attempts are used up.
    """
    ids = sorted(
        {settlement.row.task_id for settlement in accepted if _is_free(settlement.outcome)}
    )
    if not ids:
        return accepted
    former = Counter(connection.execute(_FORMER, {"ids": ids}).scalars())
    return [
        _as_attempt(settlement, longest)
        if _is_free(settlement.outcome) and former[settlement.row.task_id] >= FREE_ENDS
        else settlement
        for settlement in accepted
    ]


def failure_of(outcome: Retry | Snooze | Moved | Dead | Released | Cancelled) -> Failure:
    """Return the failure that the attempt's row records for this end."""
    if isinstance(outcome, Released):
        return RELEASED
    return CANCELLED if isinstance(outcome, Cancelled) else outcome.failure


def _is_free(outcome: Outcome) -> bool:
    if isinstance(outcome, Released):
        return outcome.spent.has_called
    if not isinstance(outcome, Snooze):
        return False
    error_class = outcome.failure.error_class
    return error_class == ErrorClass.INTERNAL or (
        error_class == ErrorClass.COME_BACK and outcome.spent.has_called
    )


def _as_attempt(settlement: Settlement, longest: Tier) -> Settlement:
    if not isinstance(settlement.outcome, Released | Snooze):
        return settlement
    failure, spent = failure_of(settlement.outcome), settlement.outcome.spent
    log.warning(
        "task %d ended as %s more than %d times: from now on its attempts count",
        settlement.row.task_id,
        failure.error_class,
        FREE_ENDS,
        extra={"code": Code.ATTEMPTS_FAIL},
    )
    if settlement.row.counted_before + 1 >= settlement.row.max_attempts:
        return replace(settlement, outcome=Dead(failure, spent, Disposition.EXHAUSTED))
    return replace(settlement, outcome=Retry(failure, spent, longest.name, longest.delay_s))
