"""A route pauses while its provider takes no calls, and begins again with one."""

import pytest

from agent.outcome import COMPLETION, Dead, Failure, Outcome, Snooze, Spent, Succeeded
from agent.route import LOCKED, OUTAGES, REFUSALS, Route

GOOD = Succeeded(b"answer", COMPLETION, Spent())


def snooze(error_class: str, delay_s: float = 10.0) -> Outcome:
    return Snooze(Failure(error_class, "said the provider"), Spent(), delay_s)


def noted(*outcomes: Outcome, at_s: float = 100.0) -> Route:
    route = Route("model")
    for outcome in outcomes:
        route.note(outcome, at_s)
    return route


def test_an_open_route_fills_all_slots() -> None:
    """As many calls as there are free slots, and never less than none."""
    route = Route("model")

    assert (route.room(0.0, 0, 64), route.room(0.0, 60, 64), route.room(0.0, 70, 64)) == (64, 4, 0)
    assert route.notice(0.0) == ""


@pytest.mark.parametrize("kind", sorted(REFUSALS))
def test_a_refusal_pauses_for_half_of_its_wait(kind: str) -> None:
    """The fleet tries again sooner than the task, and after at most 5 s."""
    short, long = noted(snooze(kind, 4.0)), noted(snooze(kind, 600.0))

    assert (short.room(101.9, 0, 64), short.room(102.0, 0, 64)) == (0, 64)
    assert (long.room(104.9, 0, 64), long.room(105.0, 0, 64)) == (0, 64)
    assert "model waits" in short.notice(101.0)
    assert kind in short.notice(101.0)


@pytest.mark.parametrize("kind", sorted(OUTAGES))
def test_a_run_of_failures_pauses_and_then_one_call_goes_first(kind: str) -> None:
    """Fewer are the tasks' affair; after the pause one call tries, and its success opens the route."""
    assert noted(*[snooze(kind)] * 4).room(100.0, 0, 64) == 64
    route = noted(*[snooze(kind)] * 5)
    assert route.room(100.5, 0, 64) == 0

    assert route.room(101.0, 0, 64) == 1
    assert route.room(101.0, 1, 64) == 0
    assert "tries one call" in route.notice(101.0)
    route.note(GOOD, 101.5)

    assert route.room(101.5, 0, 64) == 64
    assert route.notice(101.5) == ""


def test_pauses_grow_while_the_provider_is_away() -> None:
    """Doubling from 1 s to 30 s, and calls that ended during a pause do not lengthen it."""
    route = noted(*[snooze("SERVER")] * 5)
    now_s, pauses = 100.0, []
    for _ in range(7):
        pauses.append(route.until_s - now_s)
        for _ in range(20):
            route.note(snooze("NETWORK"), now_s)
        now_s = route.until_s
        route.note(snooze("SERVER"), now_s)

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_success_in_between_ends_the_run() -> None:
    """Five failures that are not in a row are no outage."""
    assert noted(*[snooze("SERVER")] * 4, GOOD, *[snooze("SERVER")] * 4).room(100.0, 0, 64) == 64


@pytest.mark.parametrize("kind", sorted(LOCKED))
def test_an_account_that_is_locked_pauses_for_long(kind: str) -> None:
    """After three calls in a row that say so: one alone may be a task that names a wrong model."""
    assert noted(*[snooze(kind)] * 2).room(100.0, 0, 64) == 64
    route = noted(*[snooze(kind)] * 3)

    assert (route.room(129.9, 0, 64), route.room(130.0, 0, 64)) == (0, 1)
    assert kind in route.notice(100.0)


@pytest.mark.parametrize("outcome", [Dead(Failure("BAD_REQUEST", "no"), Spent()), snooze("BAD_OUTPUT")])
def test_what_is_the_tasks_fault_does_not_pause_its_route(outcome: Outcome) -> None:
    """However often it happens."""
    assert noted(*[outcome] * 50).room(100.0, 0, 64) == 64
