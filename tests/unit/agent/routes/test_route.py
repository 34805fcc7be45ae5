"""One route: when calls start on it, and what a failure means for the task."""

import logging

import pytest

from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Cancelled, Dead, Outcome, Released, Snooze, Spent, Succeeded
from docllm.agent.routes.evidence import RouteEvidence
from docllm.schemas.task.result.codec import COMPLETION
from tests.support.routes import (
    GOOD,
    OF,
    ROUTE,
    call,
    exhausted,
    failed,
    notice,
    permitted,
    routes,
    snoozed,
    stopped,
)


def test_a_route_that_is_well_fills_all_slots() -> None:
    """A route that is well allows as many calls as slots are free, and never less than none."""
    router = routes()

    assert [router.room(ROUTE, 0.0, running, 64) for running in (0, 60, 70)] == [64, 4, 0]
    assert (notice(router, 0.0), router.closed(ROUTE, 0.0), router.closed_for_s(ROUTE, 0.0)) == (
        "",
        False,
        0.0,
    )


# ---- outages


@pytest.mark.parametrize("error_class", OF[Effect.OUTAGE])
def test_a_run_of_failures_stops_it(error_class: str) -> None:
    """Nine failures in a row are the tasks' own; at the tenth, no call starts for 2 s."""
    router = routes()
    for _ in range(9):
        call(router, failed(error_class), 100.0)
    assert router.room(ROUTE, 100.0, 0, 64) == 64

    call(router, failed(error_class), 100.0)

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (100.0, 101.9, 102.0)] == [0, 0, 1]
    assert router.closed(ROUTE, 500.0)
    assert router.closed_for_s(ROUTE, 100.5) == pytest.approx(1.5)
    assert notice(router, 100.0) == f"route default waits 2 s: {error_class}: 503: away"
    assert "tries one call" in notice(router, 102.0)


@pytest.mark.parametrize("outcome", [failed(), exhausted()])
def test_a_failure_of_an_outage_is_not_counted(outcome: Outcome) -> None:
    """The failure that stops a route, and all that end later, are not counted.

    They have the same reason.
    """
    router = routes()
    permits = [permitted(router, 100.0, task_id) for task_id in range(64)]
    settled = [router.ended(permit, outcome, 101.0) for permit in permits]

    assert settled[:9] == [outcome] * 9
    assert {type(result) for result in settled[9:]} == {Snooze}
    assert {
        (result.failure, result.spent, result.delay_s)
        for result in settled[9:]
        if isinstance(result, Snooze)
    } == {(failed().failure, failed().spent, 2.0)}


@pytest.mark.parametrize(
    "outcome",
    [failed("BAD_OUTPUT"), failed("HANDLER"), Dead(failed().failure, Spent()), GOOD, Released()],
)
def test_a_failure_of_no_outage_is_settled_unchanged(outcome: Outcome) -> None:
    """A failure that no outage caused is settled as it is, even while the route is stopped."""
    router = routes()
    late = permitted(router, 99.0)
    for _ in range(10):
        call(router, failed(), 100.0)

    assert router.ended(late, outcome, 101.0) is outcome


def test_one_probe_at_a_time() -> None:
    """No call starts while a probe runs; a claim that comes too late is given back."""
    router = stopped()
    assert router.room(ROUTE, 102.0, 0, 64) == 1
    probe = permitted(router, 102.0)

    assert probe.limit_s == 60.0
    assert (router.room(ROUTE, 120.0, 1, 64), router.begin(ROUTE, 2, 120.0)) == (0, None)
    router.ended(probe, failed(), 121.0)
    assert router.room(ROUTE, 121.0, 0, 64) == 1


def test_calls_that_hang_since_before_leave_room_for_a_probe() -> None:
    """Hung calls from before leave room for a probe, within the slots."""
    router = stopped()

    assert (router.room(ROUTE, 102.0, 63, 64), router.room(ROUTE, 102.0, 64, 64)) == (1, 0)


@pytest.mark.parametrize(
    "outcome",
    [
        GOOD,
        *(failed(name) for name in OF[Effect.UP]),
        *(snoozed(name) for name in OF[Effect.LOCKED]),
    ],
)
def test_any_answer_to_a_probe_starts_it_again(outcome: Outcome) -> None:
    """Any answer to a probe starts the route again, with one call first.

    An answer that is bad for the task or the account counts as well: the provider is up.
    """
    router = stopped()
    call(router, outcome, 102.0)

    assert (
        router.room(ROUTE, 102.0, 0, 64),
        router.closed(ROUTE, 102.0),
        notice(router, 102.0),
    ) == (
        1,
        False,
        "",
    )


@pytest.mark.parametrize(
    "outcome",
    [
        failed("HANDLER"),
        Succeeded(b"1", COMPLETION, Spent()),
        Released(),
        Cancelled(),
        snoozed("INTERNAL"),
    ],
)
def test_a_probe_that_met_no_provider_tells_nothing(outcome: Outcome) -> None:
    """A probe that met no provider changes nothing, and the next probe keeps its time.

    The next probe is the prompt, because the next tasks may be of the same kind.
    """
    router = stopped()
    assert call(router, outcome, 102.0) is outcome

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (102.0, 104.9, 105.0)] == [0, 0, 0]
    assert router.prompts(104.9) == []
    (prompt,) = router.prompts(105.0)
    router.answered(prompt, RouteEvidence(Effect.UP), 105.1)
    assert not router.closed(ROUTE, 105.1)


def test_a_prompt_that_tells_nothing_makes_room_for_a_task() -> None:
    """If the prompt tells nothing, for example because of a bug, a task is tried next."""
    router = stopped()
    call(router, Released(), 102.0)
    router.room(ROUTE, 105.0, 0, 64)
    (prompt,) = router.prompts(105.0)
    router.answered(prompt, RouteEvidence(Effect.NONE), 105.1)

    assert (router.room(ROUTE, 109.0, 0, 64), router.prompts(109.0)) == (1, [])


def test_slow_start_after_a_stop() -> None:
    """After a stop one call starts, then twice as many with each success.

    A claim that took more is given back.
    """
    router = stopped()
    call(router, GOOD, 102.0)

    seen = []
    for now_s in (102.0, 103.0, 104.0, 105.0):
        seen.append(router.room(ROUTE, now_s, 0, 64))
        running = [permitted(router, now_s) for _ in range(seen[-1])]
        assert (router.begin(ROUTE, 99, now_s) is None) is (seen[-1] < 64)
        for permit in running:
            router.ended(permit, GOOD, now_s + 0.5)

    assert seen == [1, 2, 8, 64]


def test_calls_from_before_a_stop_take_no_room_in_slow_start() -> None:
    """Calls from before a stop take no room in slow start; only the slots count them.

    They are not known to use the present provider.
    """
    router = routes()
    orphans = [permitted(router, 99.0) for _ in range(20)]
    for _ in range(10):
        call(router, failed(), 100.0)
    call(router, GOOD, 102.0)

    assert (router.room(ROUTE, 102.0, 20, 64), router.room(ROUTE, 102.0, 20, 20)) == (1, 0)
    for permit in orphans:
        router.ended(permit, failed(), 103.0)
    assert router.room(ROUTE, 103.0, 0, 64) == 1


def test_late_failures_change_nothing() -> None:
    """Failures of calls from before the last change neither stop a route nor move its probe.

    They are not counted either.
    """
    router = routes()
    before = [permitted(router, 99.0, task_id) for task_id in range(40)]
    for permit in before[:10]:
        router.ended(permit, failed(), 100.0)
    for permit in before[10:20]:
        assert isinstance(router.ended(permit, failed(), 101.9), Snooze)
    assert router.room(ROUTE, 102.0, 0, 64) == 1
    call(router, GOOD, 102.0)

    late = [router.ended(permit, failed("AMBIGUOUS"), 103.0) for permit in before[20:]]

    assert not router.closed(ROUTE, 103.0)
    assert {type(outcome) for outcome in late} == {Snooze}


def test_late_successes_change_nothing() -> None:
    """A call answered before the provider failed does not prove that the provider is well."""
    router = routes()
    late = permitted(router, 99.0)
    for _ in range(10):
        call(router, failed(), 100.0)
    router.ended(late, GOOD, 101.0)

    assert router.closed(ROUTE, 101.0)


# ---- the task that may itself be at fault


def test_the_last_task_still_dies() -> None:
    """A task that fails twice as a probe dies once the prompt has succeeded.

    The prompt's success lets the task's next failure count.
    """
    router = stopped(slots=3)
    assert isinstance(call(router, exhausted(), 102.0, task_id=7), Snooze)
    assert isinstance(call(router, exhausted(), 105.0, task_id=7), Snooze)
    assert (router.room(ROUTE, 109.0, 0, 3), router.begin(ROUTE, 7, 109.0)) == (0, None)
    (prompt,) = router.prompts(109.0)
    assert (prompt.task_id, prompt.limit_s) == (None, 60.0)

    router.answered(prompt, RouteEvidence(Effect.UP), 109.2)

    assert router.room(ROUTE, 109.2, 0, 3) == 1
    assert call(router, exhausted(), 109.3, task_id=7) == exhausted()


def test_a_prompt_that_fails_leaves_it_stopped() -> None:
    """If the prompt fails, the provider is at fault, and the task is not counted."""
    router = stopped()
    for now_s in (102.0, 105.0):
        call(router, failed(), now_s, task_id=7)
    router.room(ROUTE, 109.0, 0, 64)
    (prompt,) = router.prompts(109.0)
    assert router.prompts(109.0) == []

    router.answered(prompt, RouteEvidence(Effect.OUTAGE, "SERVER: 503"), 109.5)

    assert router.room(ROUTE, 112.9, 0, 64) == 0
    assert isinstance(call(router, failed(), 113.1, task_id=7), Snooze)


def test_a_prompt_that_is_refused_proves_the_provider_up() -> None:
    """A refused prompt proves that the provider is up; the route opens after a pause."""
    router = stopped()
    for now_s in (102.0, 105.0):
        call(router, failed(), now_s, task_id=7)
    router.room(ROUTE, 109.0, 0, 64)
    (prompt,) = router.prompts(109.0)

    router.answered(prompt, RouteEvidence(Effect.REFUSAL, "RATE: 429"), 109.0)

    assert [router.room(ROUTE, at_s, 0, 64) for at_s in (109.9, 110.0)] == [0, 1]


def test_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stop is logged once with its reason, a restart with its duration; calls are not logged."""
    caplog.set_level(logging.INFO)
    router = stopped()
    for now_s in (102.0, 105.0, 109.0):
        call(router, failed(), now_s, task_id=int(now_s))
    call(router, GOOD, 113.0)

    assert [record.message for record in caplog.records] == [
        "route default stopped, one call at a time is tried: SERVER: 503: away",
        "route default takes calls again, after 13 s",
    ]


# ---- the effect of an end
