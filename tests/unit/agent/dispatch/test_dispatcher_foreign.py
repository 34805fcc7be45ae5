"""Foreign records that name a task are quarantined and delay neither it nor others."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.dispatch.claimer import Purpose
from agent.inflight.delivery import Delivery, DeliveryState
from agent.ports import ClaimAnswer
from agent.routes import RoutePlan
from agent.routes.names import Preview
from agent.wiring.core import Dispatch
from tests.unit.agent.dispatch.test_dispatcher_copies import PARTITION, ROW, made, record

WAITING = replace(ROW, status=0)


def behind(dispatch: Dispatch) -> list[int]:
    return [delivery.offset for delivery in dispatch.table._behind.get(7, ())]


def test_a_foreign_record_behind_a_known_task_is_quarantined_on_arrival() -> None:
    """A foreign record behind a known task is quarantined as it arrives.

    Some dozen of 3 MiB behind a task that waits for an hour used to stop the agent for that hour.
    """
    dispatch, (first,) = made([2])
    dispatch.answers.apply(first, ClaimAnswer.EARLY, replace(WAITING, due_in_s=3600.0))

    dispatch.dispatcher.deliver([record(1, 2, b"x" * 1000), record(2, 2, b"{}")])

    assert (len(dispatch.quarantine), behind(dispatch)) == (1, [2])
    assert dispatch.quarantine.bytes > 1000
    assert dispatch.table.bodies_bytes == 0


def test_foreign_records_behind_a_task_are_quarantined_when_the_ledger_knows_it() -> None:
    """Queued foreign records are quarantined once the ledger knows the first one.

    Only then they can be compared with it.
    """
    dispatch, (first,) = made([2, 2, 2, 2], forged=[1, 3])

    dispatch.answers.apply(first, ClaimAnswer.CLAIMABLE, WAITING)

    assert (len(dispatch.quarantine), behind(dispatch), dispatch.table.bodies_bytes) == (
        2,
        [2],
        4 + 2 * 5,
    )


def test_copies_of_a_foreign_record_are_quarantined_together() -> None:
    """Copies of a foreign record are quarantined together.

    Hundreds of them used to take one question each before the task's own record had its turn.
    """
    dispatch, (first,) = made([2, 2, 1, 2, 2], forged=[0, 1, 2, 3])

    dispatch.answers.apply(first, ClaimAnswer.CONFLICT, WAITING)
    kept: list[int] = []

    async def quarantine(records: Sequence[Any]) -> list[Any]:
        kept.extend(delivery.offset for delivery in records)
        return []

    dispatch.claimer._ledger.quarantine = quarantine  # type: ignore[method-assign]
    asyncio.run(dispatch.quarantine.keep())

    assert kept == [0, 1, 3], "one of a lower fence may be right"
    assert [delivery.offset for delivery in dispatch.table.take_to_ask(0.0, 10)] == [2]


def test_which_of_two_records_is_the_tasks_is_asked_before_their_route_opens() -> None:
    """The ledger is asked which of two records is the task's before their route opens.

    A foreign record for a closed route used to delay the task's own record as long.
    """
    dispatch, (first,) = made([2], forged=[0])
    dispatch.table.queue_for_claim(first)

    dispatch.dispatcher.deliver([record(1, 2, b"{}")])

    assert dispatch.table.take_to_ask(0.0, 10) == [first]
    assert dispatch.table.take_ready(10, lambda _: 10) == []


@pytest.mark.parametrize("answer", [ClaimAnswer.UNKNOWN, ClaimAnswer.CONFLICT])
def test_a_known_task_that_the_ledger_lost_keeps_its_place(answer: ClaimAnswer) -> None:
    """The delivery of a known task that the ledger lost keeps its place.

    A backup was restored under a running agent. The value is only on the topic, and a new reader
    gets it.
    """
    dispatch, (first,) = made([2])
    dispatch.answers.apply(first, ClaimAnswer.EARLY, replace(WAITING, due_in_s=3600.0))

    dispatch.answers.apply(first, answer, None)

    assert (
        first.state,
        len(dispatch.quarantine),
        dispatch.partitions.unfinished(PARTITION.topic),
    ) == (
        DeliveryState.DELAYED,
        0,
        1,
    )


def test_a_record_without_its_body_runs_on_the_route_that_its_body_names() -> None:
    """A pointer record runs on the route that its body names.

    It was claimed for the default route, whose provider, key and price differ. It is given back,
    and claimed for its own route.
    """
    dispatch, (first,) = made([2])
    dispatch.table.drop_bodies(first)
    first.digest = None
    seen = Preview(RoutePlan("special"))
    dispatch.claimer._bodies._decoder.preview = lambda _: seen  # type: ignore[method-assign]
    started: list[Delivery] = []
    given_back: list[Delivery] = []
    dispatch.claimer._slots.start = started.append  # type: ignore[method-assign]
    dispatch.claimer._slots.give_back = given_back.append  # type: ignore[method-assign]

    async def claim(*_: Any, **__: Any) -> Any:
        return {7: (ClaimAnswer.CLAIMED, WAITING)}

    async def bodies(_: Any) -> Any:
        return {7: (b"k", b"body")}

    dispatch.claimer._ledger.claim, dispatch.claimer._ledger.bodies = claim, bodies  # type: ignore[method-assign]
    for _ in range(2):
        asyncio.run(dispatch.claimer.claim([first], Purpose.RUN))

    assert (given_back, started) == ([first], [first])
    assert (first.route, first.value, dispatch.table.bodies_bytes) == ("special", b"body", 4)


def test_a_task_that_moves_to_a_tier_needs_no_body() -> None:
    """A task that is moved to a tier needs no body.

    Up to 3 MiB of each of 125 tasks used to be read four times a second for nothing.
    """
    dispatch, (known, pointer) = (made([2])[0], [made([2])[1][0] for _ in range(2)])
    for delivery in (known, pointer):
        delivery.value = None
    pointer.digest = None
    wanted: list[Sequence[int]] = []

    async def claim(*_: Any, **__: Any) -> Any:
        return {7: (ClaimAnswer.CLAIMED, WAITING)}

    async def bodies(ids: Sequence[int]) -> Any:
        wanted.append(ids)
        return {}

    dispatch.claimer._ledger.claim, dispatch.claimer._ledger.bodies = claim, bodies  # type: ignore[method-assign]
    for delivery in (known, pointer):
        asyncio.run(dispatch.claimer.claim([delivery], Purpose.MOVE))

    assert wanted == [[7]]
