"""Slots and routes: each call has a permission of its route, and every permission goes back."""

import asyncio
from collections.abc import Iterator

import pytest

from docllm.agent.execution import slots
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Outcome, Released, Retry, Snooze, Succeeded
from docllm.agent.routes import Router
from docllm.agent.routes.evidence import RouteEvidence
from tests.support.routes import GOOD, ROUTE, call, failed, routes, snoozed
from tests.support.slots import Act, SlotsHarness, claimed, ending, started

REFUSED = snoozed("AUTH")


async def broken(_delivery: Delivery) -> Outcome:
    raise RuntimeError("a bug of ours")


async def hanging(_delivery: Delivery) -> Outcome:
    await asyncio.sleep(60)
    raise AssertionError("it is cancelled before")


async def stubborn(_delivery: Delivery) -> Outcome:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(60)
    return GOOD


def idle(table: Router) -> bool:
    """Return whether every permission came back."""
    return all(route.idle for route in table)


def test_a_failure_of_an_outage_is_settled_uncounted() -> None:
    """The routes decide, call by call, which failures are settled uncounted."""
    harness = SlotsHarness(routes(slots=3), ending(failed()))

    assert [type(outcome) for outcome in harness.run(5)] == [Retry, Retry, Snooze, Snooze, Snooze]
    assert (harness.counts.attempts, idle(harness.router)) == (5, True)
    # callers count calls at the provider, and these attempts made none
    assert harness.counts.summary().endswith(", 5 attempts in all")


def test_a_handler_that_ignores_its_cancellation_delays_no_drain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that ignores its cancellation does not delay the drain.

    The drain logs it and goes on; the task is left to its lease.
    """
    monkeypatch.setattr(slots, "CANCEL_S", 0.01)

    SlotsHarness(routes(slots=3), stubborn).run(1, cancel=True)

    assert "1 handlers go on though they were cancelled" in caplog.text


async def test_an_attempt_that_outlives_its_claim_is_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No slot is lost to a call that never returns; a younger attempt goes on."""
    harness = SlotsHarness(routes(slots=3), hanging)
    running, now_s = harness.slots(), harness.clock.now_s()
    for number, claimed_at_s in enumerate((now_s - 660.5, now_s - 659.0)):
        delivery = claimed(number, now_s)
        delivery.claimed_at_s = claimed_at_s
        running.start(delivery)
    await asyncio.sleep(0)
    running.end_overdue()
    await asyncio.sleep(0)
    assert running.running == 1
    await running.drain(0.0)

    assert [type(outcome) for outcome in harness.settler.outcomes] == [Released, Released]
    assert caplog.text.count("has outlived its claim") == 1


async def test_a_standstill_of_the_machine_is_no_bug(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limits of attempts end them; one that they do not end is ended a tick later."""
    harness = SlotsHarness(routes(slots=3), hanging)
    running, now_s = harness.slots(), harness.clock.now_s()
    running.start(claimed(0, now_s))
    await asyncio.sleep(0)
    monkeypatch.setattr(harness.clock, "now_s", lambda: now_s + 700.0)
    running.end_overdue()
    await asyncio.sleep(0)
    assert running.running == 1
    monkeypatch.setattr(harness.clock, "now_s", lambda: now_s + 701.0)
    running.end_overdue()
    await asyncio.sleep(0)
    assert running.running == 0
    await running.drain(0.0)

    assert caplog.text.count("has outlived its claim") == 1


def test_a_task_whose_route_stopped_meanwhile_is_released() -> None:
    """A task whose route stopped since the claim is given back without a call."""
    harness = SlotsHarness(routes(slots=3), ending(GOOD))
    for _ in range(3):
        call(harness.router, failed(), harness.clock.now_s())

    assert [type(outcome) for outcome in harness.run(4)] == [Released] * 4
    assert (harness.counts.attempts, harness.attempt_runner.limits_s) == (0, [])


def test_a_probe_has_a_limit_of_its_own() -> None:
    """Of tasks claimed together, only the probe has the probe's limit."""
    harness = SlotsHarness(routes(slots=3), ending(GOOD))
    for _ in range(3):
        call(harness.router, failed(), harness.clock.now_s() - 10.0)

    assert [type(outcome) for outcome in harness.run(3)] == [Released, Released, Succeeded]
    assert harness.attempt_runner.limits_s == [60.0]
    assert not harness.router.closed(ROUTE, harness.clock.now_s())


@pytest.mark.parametrize(("act", "cancel"), [(broken, False), (hanging, True)])
def test_every_permission_goes_back(
    act: Act, *, cancel: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Every permission goes back, even after a bug or a cancellation.

    Neither says anything about the route.
    """
    harness = SlotsHarness(routes(slots=3), act)
    harness.run(8, cancel=cancel)

    assert idle(harness.router)
    assert not harness.router.closed(ROUTE, harness.clock.now_s())


def test_a_task_that_is_refused_alone_differs_from_a_wrong_key() -> None:
    """A task that is refused alone differs from a wrong key.

    A firewall answers 403 to one document for ever. From the second time on, with an answer to
    another call between, the refusal counts.
    """
    outcomes: Iterator[Outcome] = iter([REFUSED, REFUSED, GOOD, REFUSED])

    async def act(_delivery: Delivery) -> Outcome:
        await asyncio.sleep(0.001)  # let the clock advance
        return next(outcomes)

    harness = SlotsHarness(routes(slots=3), act)
    blocked = claimed(1, harness.clock.now_s())
    for delivery in (blocked, blocked, claimed(2, harness.clock.now_s()), blocked):
        started(harness, delivery)

    assert harness.attempt_runner.refused_alone == [False, False, False, True]


def test_a_rate_limit_between_other_answers_counts_for_no_task() -> None:
    """A task that met a rate limit between answers to others is retried uncounted."""
    outcomes: Iterator[Outcome] = iter([snoozed("RATE", 0.0), GOOD, GOOD])

    async def act(_delivery: Delivery) -> Outcome:
        await asyncio.sleep(0.001)
        return next(outcomes)

    harness = SlotsHarness(routes(slots=3), act)
    limited = claimed(1, harness.clock.now_s())
    for delivery in (limited, claimed(2, harness.clock.now_s()), limited):
        started(harness, delivery)

    assert harness.attempt_runner.refused_alone == [False, False, False]


def test_the_cheap_prompt_distinguishes_the_last_task_from_a_wrong_key() -> None:
    """The cheap prompt tells the last task's fault from a wrong key.

    Nothing else calls any more: the task parks its route, fails twice as a probe, and the prompt is
    answered.
    """
    table, at_s = routes(), 100.0
    for _ in range(3):
        call(table, REFUSED, at_s)
    for _ in range(2):
        at_s += 60.0
        call(table, REFUSED, at_s)

    at_s += 60.0
    assert table.room(ROUTE, at_s, 0, 8) == 0
    (prompt,) = table.prompts(at_s)
    table.answered(prompt, RouteEvidence(Effect.UP), at_s + 1.0)

    assert table.answered_since(ROUTE, at_s - 60.0)
