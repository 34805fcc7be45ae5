"""Many records of one task: one answer suffices for all copies, and for no other record."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from agent.dispatch.record_finisher import Wakeups
from agent.inflight.decoder import RecordDecoder
from agent.inflight.delivery import Delivery
from agent.inflight.limits import InFlightLimits
from agent.inflight.partitions import Partitions
from agent.outcome import (
    COMPLETION,
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from agent.ports import Assigned, ClaimAnswer, Partition, Record, Row, Verdict
from agent.routes import RoutePlan
from agent.wiring import core
from agent.wiring.core import Common, Dispatch
from schemas.task.record.envelope import Publication, encode
from schemas.task.record.lanes import Lane

PARTITION = Partition("group.tasks", "id", 0, 1)
LEDGER = "00" * 16
FAILURE = Failure("SERVER", "500")
# A row as it is read, with fence 2.
ROW = Row(7, 1, 3, 0, 2, 0, 5, 0, 0.0, False, "document", b"k", "batch")  # noqa: FBT003


def made(fences: Sequence[int], forged: Sequence[int] = ()) -> tuple[Dispatch, list[Delivery]]:
    """Return a dispatcher's parts, after it read a record of each fence, and the first delivery.

    The records at the places `forged` have other bytes.
    """
    parts: dict[str, Any] = {
        name: MagicMock()
        for name in (
            "ledger",
            "letters",
            "leases",
            "publishing",
            "lost_records",
            "failures",
            "memory",
            "clock",
            "counts",
            "longest_tier",
        )
    }
    parts["clock"].now_s.return_value = 0.0
    parts["letters"].without_letters = AsyncMock(side_effect=list)
    naming = MagicMock()
    naming.plan_of_route.return_value = RoutePlan("route")
    dispatch = core.dispatch(
        Common(wakeups=Wakeups(), limits=InFlightLimits(), claim_s=60.0, **parts),
        partitions=Partitions({PARTITION.topic: MagicMock()}, limits=InFlightLimits()),
        decoder=RecordDecoder(ledger_id=LEDGER, group="group", naming=naming),
        lanes={PARTITION.topic: Lane.NORMAL},
        weight_of=lambda _tenant: 1.0,
        is_apart=lambda _type: False,
        admission=MagicMock(slots=64),
        slots=MagicMock(),
    )
    dispatch.dispatcher.deliver(Assigned((PARTITION,)))
    dispatch.dispatcher.deliver(
        [
            record(offset, fence, b"other" if offset in forged else b"{}")
            for offset, fence in enumerate(fences)
        ]
    )
    return dispatch, dispatch.table.take_to_ask(0.0, 10)


def record(offset: int, fence: int, value: bytes) -> Record:
    return Record(
        PARTITION, offset, 0, b"k", value, encode(Publication(LEDGER, "group", "batch", 7, fence))
    )


def left(dispatch: Dispatch) -> int:
    return dispatch.partitions.unfinished(PARTITION.topic)


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
    dispatch, (first,) = made(fences)

    dispatch.answers.apply(first, answer, ROW)

    assert left(dispatch) == unfinished


def test_a_record_with_other_bytes_is_quarantined() -> None:
    """A record with other bytes is quarantined; the copies behind it end with the first."""
    dispatch, (first,) = made([2, 2, 2], forged=[1])

    dispatch.answers.apply(first, ClaimAnswer.DONE, ROW)

    assert (left(dispatch), len(dispatch.quarantine)) == (1, 1)
    assert dispatch.table.take_to_ask(0.0, 10) == []


def test_a_task_that_is_archived_has_no_fence_to_compare() -> None:
    """An archived task has no fence to compare, so the ledger is asked about each record."""
    dispatch, (first,) = made([0, 0])

    dispatch.answers.apply(first, ClaimAnswer.DONE, None)

    assert left(dispatch) == 1


@pytest.mark.parametrize(
    ("outcome", "verdict", "unfinished"),
    [
        (Succeeded(b"", COMPLETION, Spent()), Verdict.SETTLED, 1),
        (Dead(FAILURE, Spent()), Verdict.SETTLED, 1),
        (Dead(FAILURE, Spent(), "exhausted"), Verdict.HELD_BACK, 1),
        (Retry(FAILURE, Spent(), "30s", 30.0), Verdict.SETTLED, 1),
        (Succeeded(b"", COMPLETION, Spent()), Verdict.FENCED, 4),
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
    dispatch, (first,) = made([500, 2, 1, 3])
    first.row = replace(ROW, status=1)

    dispatch.dispatcher.finish([(first, outcome, verdict)])

    assert left(dispatch) == unfinished


def test_thousands_of_copies_take_one_question() -> None:
    """Thousands of copies take one question.

    Each used to take its own, one after another, and each searched through all the others.
    """
    dispatch, (first,) = made([2] * 3000)
    asked = []

    async def ask(records: Sequence[Any]) -> Any:
        asked.append(len(records))
        return {7: (ClaimAnswer.DONE, ROW)}

    dispatch.claimer._ledger.ask = ask  # type: ignore[method-assign]
    asyncio.run(dispatch.claimer.ask([first]))

    assert (asked, left(dispatch), dispatch.partitions.marked()) == (
        [1],
        0,
        {("group.tasks", 0): 3000},
    )
    assert dispatch.table._by_task == dispatch.table._behind == {}
