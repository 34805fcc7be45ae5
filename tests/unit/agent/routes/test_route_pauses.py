"""A refused or locked route pauses, or is parked until an answer or a person."""

import logging
from collections.abc import Callable

import pytest

from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Outcome, Snooze
from docllm.agent.routes import Router
from tests.support.routes import (
    GOOD,
    OF,
    ROUTE,
    call,
    exhausted,
    failed,
    notice,
    paused,
    permitted,
    routes,
    snoozed,
    stopped,
)


@pytest.mark.parametrize("error_class", OF[Effect.REFUSAL])
def test_a_route_whose_calls_are_refused_pauses_for_half_of_the_wait(error_class: str) -> None:
    """A refused route is tried before the refused task, after at most 2 s, and with one call."""
    short, long = routes(), routes()
    paused(short, snoozed(error_class, 4.0), 100.0)
    paused(long, snoozed(error_class, 600.0), 100.0)

    assert [short.room(ROUTE, at_s, 0, 64) for at_s in (101.9, 102.0)] == [0, 1]
    assert [long.room(ROUTE, at_s, 0, 64) for at_s in (101.9, 102.0)] == [0, 1]
    assert (short.closed_for_s(ROUTE, 101.0), short.begin(ROUTE, 1, 101.0)) == (1.0, None)
    assert notice(short, 101.0) == f"route default waits 1 s: {error_class}: said the provider"
    assert notice(short, 102.0) == f"route default tries one call: {error_class}: said the provider"


@pytest.mark.parametrize("error_class", OF[Effect.REFUSAL])
def test_a_single_refusal_holds_for_its_task_alone(error_class: str) -> None:
    """A single refusal delays only its own task, for all the time that the provider asks for."""
    router = routes()
    permits = [permitted(router, 100.0, task_id) for task_id in range(64)]

    assert router.ended(permits[0], snoozed(error_class, 600.0), 100.1) == snoozed(
        error_class, 600.0
    )

    assert (router.closed(ROUTE, 100.1), notice(router, 100.1)) == (False, "")
    assert router.room(ROUTE, 100.1, 63, 64) == 1


def test_a_refused_route_is_closed_until_an_answer_comes() -> None:
    """A refused route stays closed between two pauses, so its tasks do not hold up others."""
    router = routes()
    paused(router, snoozed("RATE"), 100.0)
    for now_s in (105.0, 110.0):
        call(router, snoozed("RATE"), now_s)
        assert router.closed(ROUTE, now_s + 5.0)

    call(router, GOOD, 115.0)

    assert (router.closed(ROUTE, 115.0), notice(router, 115.0)) == (False, "")


def test_pauses_grow_while_the_trial_is_refused() -> None:
    """Pauses grow to at most 2 s, so that full speed soon follows the last refusal."""
    router, at_s, pauses_s = routes(), 100.0, []
    paused(router, snoozed("RATE", 1.0), at_s)
    for _ in range(5):
        pauses_s.append(router.closed_for_s(ROUTE, at_s))
        at_s += pauses_s[-1]
        call(router, snoozed("RATE", 1.0), at_s)

    assert pauses_s == [0.5, 1.0, 2.0, 2.0, 2.0]


def test_a_hung_call_from_before_a_refusal_does_not_delay_its_route() -> None:
    """Only calls begun after the pause count; a hung call from before may take its 600 s."""
    router = routes()
    permitted(router, 99.0)
    paused(router, snoozed("RATE", 2.0), 100.0)

    assert router.room(ROUTE, 101.0, 1, 64) == 1
    call(router, GOOD, 101.0)
    assert router.room(ROUTE, 101.0, 1, 64) >= 1


def test_a_trial_that_hangs_is_waited_for_no_longer_than_three_usual_answers() -> None:
    """After three usual answer times, the next task is tried while the first call goes on.

    If no answer time is known, that happens after a minute, and if answers are slow, after half as
    long again as usual.
    """
    for usual_s, long_s in ((0.1, 2.0), (4.0, 12.0), (30.0, 60.0), (60.0, 90.0), (None, 60.0)):
        router = routes()
        if usual_s is not None:
            router.ended(permitted(router, 95.0 - usual_s), GOOD, 95.0)
        paused(router, snoozed("RATE", 2.0), 100.0)
        permitted(router, 101.0)

        assert router.room(ROUTE, 100.9 + long_s, 1, 64) == 0
        assert router.room(ROUTE, 101.1 + long_s, 1, 64) == 1


def test_refusals_from_before_a_pause_do_not_count_after_it() -> None:
    """Of 64 calls that were refused together, the late ones do not begin another pause."""
    router = routes()
    permits = [permitted(router, 100.0, task_id) for task_id in range(64)]
    for permit in permits[:40]:
        router.ended(permit, snoozed("RATE", 4.0), 100.1)
    call(router, GOOD, 102.2)
    for permit in permits[40:]:
        router.ended(permit, snoozed("RATE", 4.0), 102.3)

    assert not router.closed(ROUTE, 102.3)


def test_calls_that_run_far_longer_than_usual_are_logged() -> None:
    """Long-running calls are logged by name and number before their time limit ends them."""
    router = routes()
    call(router, GOOD, 100.0)
    permits = [permitted(router, 100.0, task_id) for task_id in range(10)]
    assert notice(router, 129.0) == ""

    assert notice(router, 280.0).startswith(
        "route default: 10 calls have been running for 180 s, usually they take "
    )
    for permit in permits[1:]:
        router.ended(permit, GOOD, 281.0)
    assert "1 call has been running for 500 s" in notice(router, 600.0)
    router.ended(permits[0], GOOD, 600.0)
    assert notice(router, 600.0) == ""


def test_the_reason_of_a_pause_is_the_refusal() -> None:
    """The reason of a pause is the refusal; a failure during it belongs to its task.

    That changes once such failures stop the route.
    """
    router = routes(slots=3)
    permits = [permitted(router, 100.0, task_id) for task_id in range(8)]
    for permit in permits[:5]:
        router.ended(permit, snoozed("RATE"), 100.0)
    for permit in permits[5:7]:
        router.ended(permit, failed(), 101.0)
    assert "RATE" in notice(router, 101.0)

    router.ended(permits[7], failed(), 102.0)

    assert "SERVER" in notice(router, 102.0)


def test_answers_during_a_pause_take_back_the_slow_start() -> None:
    """Answers during a pause cancel the slow start: one refusal among many answers is no reason."""
    router = routes(slots=8)
    permits = [permitted(router, 100.0) for _ in range(5)]
    router.ended(permits[0], snoozed("RATE", 2.0), 100.1)
    for permit in permits[1:]:
        router.ended(permit, GOOD, 100.2)

    assert router.room(ROUTE, 101.1, 0, 8) == 8


def test_a_refusal_ends_a_stop() -> None:
    """A refusal ends a stop: the provider answers and asks for time."""
    router = stopped()
    call(router, snoozed("CAPACITY", 2.0), 102.0)

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (102.9, 103.0)] == [0, 1]


@pytest.mark.parametrize(
    ("error_class", "what"),
    [
        ("MONEY", "pay, or raise the limit, then run"),
        ("AUTH", "if at the provider, run"),
        ("AUTH", "correct its key, model or address in the settings file"),
    ],
)
def test_a_locked_account_parks_the_route(
    error_class: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Three refusals of the account in a row park the route.

    The agent logs that once, loudly and with advice, and tries the route every minute.
    """
    router = routes()
    for _ in range(2):
        call(router, snoozed(error_class), 100.0)
    assert router.room(ROUTE, 100.0, 0, 64) == 64
    assert call(router, snoozed(error_class), 100.0) == snoozed(error_class)

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (159.9, 160.0)] == [0, 1]
    call(router, snoozed(error_class), 160.0)
    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (219.9, 220.0)] == [0, 1]
    (message,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"parked: {error_class}: said the provider; " in message.message
    assert what in message.message
    assert message.message.endswith(" run: docllm agent resume default --group g")
    next_try = "next try in 40 s, or now with: docllm agent resume default --group g"
    fix = "correct its key, model or address, "
    assert f"is parked, {fix if error_class == 'AUTH' else ''}{next_try}" in notice(router, 180.0)


@pytest.mark.parametrize("between", [GOOD, failed("BAD_OUTPUT")])
def test_an_answer_in_between_ends_the_run(between: Outcome) -> None:
    """An answer ends the run, so a task with a wrong model does not park the others' route."""
    router = routes()
    for outcome in (snoozed("AUTH"), snoozed("AUTH"), between, snoozed("AUTH"), snoozed("AUTH")):
        call(router, outcome, 100.0)

    assert not router.closed(ROUTE, 100.0)


@pytest.mark.parametrize(
    ("outcome", "began_s", "answered"),
    [
        (GOOD, 101.0, True),
        (GOOD, 100.0, False),
        (failed("BAD_OUTPUT"), 101.0, False),
        (exhausted("BAD_REQUEST"), 101.0, False),
    ],
)
def test_an_answer_tells_of_the_time_at_which_its_call_began(
    outcome: Outcome, began_s: float, *, answered: bool
) -> None:
    """An answer counts for the time when its call began.

    The key may have been revoked since, and an unusable request may be refused before the key is
    checked.
    """
    router = routes()
    permit = permitted(router, began_s)
    router.ended(permit, outcome, 105.0)

    assert router.answered_since(ROUTE, 100.0) is answered
    assert not router.answered_since("another", 100.0)


def test_a_closed_route_has_answered_nobody() -> None:
    """Answers from before a route closed say nothing about it now."""
    router = routes()
    call(router, GOOD, 99.0)
    for _ in range(10):
        call(router, snoozed("AUTH"), 100.0)

    assert not router.answered_since(ROUTE, 98.0)


@pytest.mark.parametrize(("slots", "run"), [(1, 3), (8, 8), (64, 10)])
def test_a_route_that_has_answered_is_parked_by_a_longer_run(slots: int, run: int) -> None:
    """A route that has answered before is parked only by a longer run.

    A revoked key is refused to all. After a restart three refusals suffice again, until one call is
    answered.
    """
    router = routes(slots)
    call(router, GOOD, 99.0)

    assert [
        router.closed(ROUTE, 100.0) for _ in range(run) if call(router, snoozed("AUTH"), 100.0)
    ] == [False] * (run - 1) + [True]
    call(router, GOOD, 160.0)
    assert [
        router.closed(ROUTE, 161.0) for _ in range(3) if call(router, snoozed("AUTH"), 161.0)
    ] == [False, False, True]


@pytest.mark.parametrize("of", [failed, exhausted])
def test_a_key_that_is_refused_to_all_counts_nothing(of: Callable[[str], Outcome]) -> None:
    """A key refused to all calls counts no attempt.

    That holds also for a task that was refused alone before, because its route was parked
    meanwhile.
    """
    router = routes()
    late = permitted(router, 99.0)
    for _ in range(2):
        call(router, snoozed("AUTH"), 100.0)

    assert isinstance(call(router, of("AUTH"), 100.0), Snooze)
    assert isinstance(router.ended(late, of("AUTH"), 101.0), Snooze)


def test_an_answer_unparks_a_route() -> None:
    """An answer unparks a route, for example once somebody has paid.

    Slow start follows, and three more refusals are needed to park it again.
    """
    router = parked()
    call(router, GOOD, 160.0)
    assert router.room(ROUTE, 160.0, 0, 64) == 1

    call(router, snoozed("MONEY"), 161.0)
    assert not router.closed(ROUTE, 161.0)


def test_an_outage_does_not_unpark_a_route() -> None:
    """An outage keeps a parked route parked with its reason, and counts no failure."""
    router = parked()
    settled = call(router, failed(), 160.0)

    assert isinstance(settled, Snooze)
    assert "MONEY" in notice(router, 161.0)


def test_a_person_can_resume_a_route(caplog: pytest.LogCaptureFixture) -> None:
    """A person resumes a route at once, whatever closed it; a healthy route does not change."""
    for router in (parked(), stopped()):
        assert router.resume(ROUTE, 101.0)
        assert (
            router.room(ROUTE, 101.0, 0, 64),
            router.resume(ROUTE, 101.0),
            router.resume("other", 101.0),
        ) == (1, False, False)
    router = routes()
    paused(router, snoozed("RATE", 100.0), 100.0)
    assert router.resume(ROUTE, 101.0)
    assert router.room(ROUTE, 101.0, 0, 64) == 1


def parked() -> Router:
    """Return routes whose default one was parked at 100 s."""
    router = routes()
    for _ in range(3):
        call(router, snoozed("MONEY"), 100.0)
    return router


def test_a_provider_that_is_closed_for_long_is_not_hammered() -> None:
    """If the call after a pause is refused too, with a long wait, one call a minute is tried."""
    router = routes()
    paused(router, snoozed("RATE", 600.0), 100.0)
    call(router, snoozed("RATE", 600.0), 105.0)

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (164.9, 165.0)] == [0, 1]

    call(router, GOOD, 165.0)

    assert not router.closed(ROUTE, 165.1)


def test_after_a_long_pause_half_of_the_former_calls_begin() -> None:
    """Calls do not begin again with one at a time: only a stop says that nothing works."""
    router, at_s = routes(), 100.0
    paused(router, snoozed("RATE", 4.0), at_s)
    for _ in range(70):  # more than two minutes without an answer
        at_s += 2.0
        call(router, snoozed("RATE", 4.0), at_s)
    at_s += 2.0
    call(router, GOOD, at_s)

    assert router.room(ROUTE, at_s + 1.0, 0, 64) > 1
    assert [report.allowed for report in router.reports((), at_s + 1.0, 0.0)] == [32]
