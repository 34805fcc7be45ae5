"""Foreign records that name a task are quarantined and delay neither it nor others."""

import asyncio
from dataclasses import replace
from unittest.mock import call

import pytest

from docllm.agent.dispatch.claimer import Purpose
from docllm.agent.inflight.delivery import DeliveryState
from docllm.agent.ports import ClaimAnswer
from docllm.agent.routes import RoutePlan
from docllm.schemas.settings.config import Config, RouteConfig
from tests.support.dispatch import DispatchHarness, harness_after, new_record
from tests.support.ledger import new_row

WAITING = new_row(fence=2)


def behind(harness: DispatchHarness) -> list[int]:
    return [delivery.offset for delivery in harness.parts.table.behind.by_task.get(7, ())]


def test_a_foreign_record_behind_a_known_task_is_quarantined_on_arrival() -> None:
    """A foreign record behind a known task is quarantined as it arrives.

    Some dozen of 3 MiB behind a task that waits for an hour used to stop the agent for that hour.
    """
    harness, first = harness_after([2])
    harness.parts.answers.apply(first, ClaimAnswer.EARLY, replace(WAITING, due_in_s=3600.0))

    harness.parts.dispatcher.deliver([new_record(1, 2, b"x" * 1000), new_record(2, 2, b"{}")])

    assert (len(harness.parts.quarantine), behind(harness)) == (1, [2])
    assert harness.parts.quarantine.bytes > 1000
    assert harness.parts.table.bodies_bytes == 0


def test_foreign_records_behind_a_task_are_quarantined_when_the_ledger_knows_it() -> None:
    """Queued foreign records are quarantined once the ledger knows the first one.

    Only then they can be compared with it.
    """
    harness, first = harness_after([2, 2, 2, 2], forged=[1, 3])

    harness.parts.answers.apply(first, ClaimAnswer.CLAIMABLE, WAITING)

    assert (len(harness.parts.quarantine), behind(harness), harness.parts.table.bodies_bytes) == (
        2,
        [2],
        4 + 2 * 5,
    )


def test_copies_of_a_foreign_record_are_quarantined_together() -> None:
    """Copies of a foreign record are quarantined together.

    Hundreds of them used to take one question each before the task's own record had its turn.
    """
    harness, first = harness_after([2, 2, 1, 2, 2], forged=[0, 1, 2, 3])

    harness.parts.answers.apply(first, ClaimAnswer.CONFLICT, WAITING)

    asyncio.run(harness.parts.quarantine.keep())

    (kept,) = harness.ledger.quarantined
    assert [rejected.offset for rejected in kept] == [0, 1, 3], "one of a lower fence may be right"
    assert [delivery.offset for delivery in harness.parts.table.take_to_ask(0.0, 10)] == [2]


def test_which_of_two_records_is_the_tasks_is_asked_before_their_route_opens() -> None:
    """The ledger is asked which of two records is the task's before their route opens.

    A foreign record for a closed route used to delay the task's own record as long.
    """
    harness, first = harness_after([2], forged=[0])
    harness.parts.table.queue_for_claim(first)

    harness.parts.dispatcher.deliver([new_record(1, 2, b"{}")])

    assert harness.parts.table.take_to_ask(0.0, 10) == [first]
    assert harness.parts.table.take_ready(10, lambda _: 10) == []


@pytest.mark.parametrize("answer", [ClaimAnswer.UNKNOWN, ClaimAnswer.CONFLICT])
def test_a_known_task_that_the_ledger_lost_keeps_its_place(answer: ClaimAnswer) -> None:
    """The delivery of a known task that the ledger lost keeps its place.

    A backup was restored under a running agent. The value is only on the topic, and a new reader
    gets it.
    """
    harness, first = harness_after([2])
    harness.parts.answers.apply(first, ClaimAnswer.EARLY, replace(WAITING, due_in_s=3600.0))

    harness.parts.answers.apply(first, answer, None)

    assert (
        first.state,
        len(harness.parts.quarantine),
        harness.unfinished,
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
    special = RouteConfig(base_url="http://special", model="m")
    harness, first = harness_after([2], config=Config(routes={"special": special}))
    harness.parts.table.drop_bodies(first)
    first.digest = None
    body = b'{"id":"k","prompt":"p","route":"special"}'
    harness.ledger.answers[first.task_id] = (ClaimAnswer.CLAIMED, WAITING)
    harness.ledger.stored_bodies[first.task_id] = (b"k", body)

    for _ in range(2):
        asyncio.run(harness.parts.claimer.claim([first], Purpose.RUN))

    assert harness.slots.method_calls == [call.give_back(first), call.start(first)]
    assert (first.route, first.value) == ("special", body)
    assert harness.parts.table.bodies_bytes == len(body)


def test_a_waiting_task_that_no_route_was_allowed_learns_of_a_gained_one() -> None:
    """The settings gained its route while its record waited without its body."""
    special = RouteConfig(base_url="http://special", model="m")
    harness, first = harness_after([2], config=Config(routes={"special": special}))
    harness.parts.table.drop_bodies(first)
    first.plan = RoutePlan("special", known=False)
    body = b'{"id":"k","prompt":"p","route":"special"}'
    harness.ledger.answers[first.task_id] = (ClaimAnswer.CLAIMED, WAITING)
    harness.ledger.stored_bodies[first.task_id] = (b"k", body)

    asyncio.run(harness.parts.claimer.claim([first], Purpose.RUN))

    assert (first.plan.known, list(first.plan)) == (True, ["special"])
    assert harness.slots.method_calls == [call.start(first)]


def test_a_task_that_moves_to_a_tier_needs_no_body() -> None:
    """A task that is moved to a tier needs no body.

    Up to 3 MiB of each of 125 tasks used to be read four times a second for nothing.
    """
    wanted = []
    for is_known in (True, False):
        harness, delivery = harness_after([2])
        delivery.value = None
        delivery.digest = delivery.digest if is_known else None
        harness.ledger.answers[delivery.task_id] = (ClaimAnswer.CLAIMED, WAITING)
        asyncio.run(harness.parts.claimer.claim([delivery], Purpose.MOVE))
        wanted.append(harness.ledger.wanted_bodies)

    assert wanted == [[], [[7]]]
