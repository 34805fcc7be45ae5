"""A task that repeatedly meets a provider's error, while others succeed, is itself at fault."""

import random
from itertools import cycle

from docllm.agent.judge import Effect
from docllm.agent.ports.outcome import Dead, Outcome, Retry
from docllm.agent.routes.evidence import RouteEvidence
from tests.support.routes import GOOD, ROUTE, BusyAgent, call, exhausted, failed, routes


def test_tasks_that_fail_again_while_others_succeed_do_not_stop_their_route() -> None:
    """Nine requests that a server cannot read get a 500 each time, and other tasks go on.

    The nine failures count as the tasks' own.
    """
    router = routes()
    for attempt in range(5):
        for task_id in range(9):
            outcome: Outcome = exhausted() if attempt == 4 else failed()
            assert call(router, outcome, 100.0 + attempt, task_id) is outcome
            if attempt:
                assert call(router, failed(), 100.5 + attempt, task_id) == failed()
        call(router, GOOD, 100.9 + attempt, task_id=100)

        assert not router.closed(ROUTE, 101.0 + attempt)


def test_the_failures_of_bad_tasks_do_not_add_up() -> None:
    """Six in ten calls belong to tasks that always fail: at the second time they are ignored."""
    bad = [*range(12)] * 30
    rng = random.Random(1)  # noqa: S311 - repeatable runs
    router, good, at_s = routes(), 0, 100.0
    while bad:
        at_s += 0.01
        if rng.random() < 0.6:
            assert isinstance(call(router, failed(), at_s, bad.pop(0)), Retry | Dead)
        else:
            good += call(router, GOOD, at_s, 1000 + good) is GOOD
        assert not router.closed(ROUTE, at_s)


def test_an_outage_stops_the_route_though_tasks_failed_before() -> None:
    """An outage stops the route even if tasks failed before: nobody was answered since."""
    router = routes()
    for task_id in range(5):
        call(router, failed(), 100.0, task_id)
    for task_id in range(5):
        call(router, failed(), 140.0, task_id)

    assert router.closed(ROUTE, 140.0)


def test_an_outage_after_a_short_failure_stops_the_route_by_fresh_tasks() -> None:
    """Fresh tasks stop the route in an outage, though tasks that failed before are retried too."""
    blip = range(20, 22)

    def answer(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
        return (0.05, failed()) if int(now_s) in blip or now_s >= 40 else (0.19, GOOD)

    agent = BusyAgent(routes(64), answer, 64)
    agent.drive(60.0)

    assert agent.calls(40.0, 60.0) <= 64 + 20
    assert agent.counted() <= 20


def test_a_task_that_kills_its_connection_counts_for_the_route() -> None:
    """A lost connection counts for the route.

    Only what the provider calls its own error is one request's fault.
    """
    router = routes()
    for attempt in range(10):
        call(router, failed("NETWORK"), 100.0 + attempt, task_id=1)

    assert router.closed(ROUTE, 109.0)


def test_bad_tasks_that_are_left_over_do_not_hold_their_route_for_ever() -> None:
    """An outage stops the route, and only bad tasks are left when it is over.

    Each is another task, and each fails as a probe. The prompt still goes soon, and is answered.
    From then on the failures of the bad tasks count, and as many as before may run at once.
    """
    router, bad = routes(), 300
    for task_id in range(bad):
        call(router, failed(), 100.0 + task_id / 100, task_id)
        for _ in range(2):
            call(router, GOOD, 100.005 + task_id / 100, task_id=1000)
    for task_id in range(1001, 1011):
        call(router, failed(), 110.0, task_id)
    assert router.closed(ROUTE, 110.0)

    now_s, counted, task_ids = 110.0, 0, cycle(range(bad))
    while now_s < 160.0:
        now_s += 0.1
        for permit in router.prompts(now_s):
            router.answered(permit, RouteEvidence(Effect.UP), now_s)
        if router.room(ROUTE, now_s, 0, 64):
            counted += isinstance(call(router, failed(), now_s, next(task_ids)), Retry)

    assert counted >= 50
    assert router.room(ROUTE, now_s, 0, 64) == 64
