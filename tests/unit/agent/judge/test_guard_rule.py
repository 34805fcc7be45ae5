"""The guard's rule for tasks that fail as a whole: what the contract of guards does not show."""

import pytest

from docllm.agent.judge.guard_rule import (
    MAX_LOOK,
    EndCount,
    KeyHistory,
    Look,
    next_in_s,
    next_size,
)
from docllm.schemas.task.guard import GuardCause

ERROR, OTHER = b"e" * 16, b"o" * 16


def error_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def deaths_until_raised(history: KeyHistory, *errors: bytes) -> int:
    """Fail tasks for good until one is held back; return how many died."""
    for died, error in enumerate(errors):
        if not history.let_die(error):
            return died
    return len(errors)


@pytest.mark.parametrize(
    "between",
    [
        lambda history: history.count_own_death(),
        lambda history: history.count_success(),
        lambda history: history.let_die(OTHER),
    ],
)
def test_a_row_is_broken_by_anything_else(between: object) -> None:
    """A success, a death by its own input, or another error begins a new row."""
    history = KeyHistory(raised=False, route_works=True, recent_ends=[EndCount(None, 5000)])
    deaths_until_raised(history, *[ERROR] * 9)

    between(history)  # type: ignore[operator]

    assert deaths_until_raised(history, *[ERROR] * 20) == 10


def test_more_deaths_than_others_are_a_failure_as_a_whole() -> None:
    """Different errors count together: beyond ten, and beyond half of all ended tasks."""
    history = KeyHistory(raised=False, route_works=True, recent_ends=[EndCount(None, 20)])

    assert deaths_until_raised(history, *map(error_of, range(1, 100))) == 21
    assert history.why == "21 of the last 41 tasks were given up on"


def test_a_long_good_run_is_not_held_back_at_its_end() -> None:
    """The batch's last tasks may all be bad ones: they were tried again for longest."""
    asked: list[bool] = []

    def ends_well() -> bool:
        asked.append(True)
        return True

    history = KeyHistory(raised=False, route_works=True, ends_well=ends_well)

    assert deaths_until_raised(history, *[ERROR] * 9) == 9
    assert asked == []  # it is a question to the ledger
    assert deaths_until_raised(history, *[ERROR] * 30) == 30
    assert not history.raised


# ---- tasks that are refused


def refused_until_raised(history: KeyHistory, *errors: bytes) -> int:
    """Let tasks be refused for good until one is held back; return how many died."""
    for died, error in enumerate(errors):
        if not history.let_die_of_bad_request(error):
            return died
    return len(errors)


def test_a_few_that_fail_otherwise_do_not_hide_a_wrong_parameter() -> None:
    """Other deaths and other refusals among them, as long as most were refused for this reason."""
    history = KeyHistory(raised=False, route_works=True, has_no_success=True)
    for number in range(5):
        history.count_own_death()
        assert history.let_die_of_bad_request(error_of(number))
    assert refused_until_raised(history, *[ERROR] * 20) == 12

    assert history.cause is GuardCause.BAD_REQUEST
    assert (
        history.why
        == "12 of 22 tasks that ended were refused for the same reason, and none has succeeded"
    )


def test_refusals_for_many_reasons_are_the_tasks_own() -> None:
    """None of the reasons is that of most tasks."""
    history = KeyHistory(raised=False, route_works=True, has_no_success=True)

    assert refused_until_raised(history, *([ERROR, OTHER, b"3" * 16] * 50)) == 150
    assert not history.raised


def test_a_guard_for_refusals_holds_back_refusals() -> None:
    """Whatever their reason; a guard that was raised for another cause holds back none."""
    assert not KeyHistory(
        raised=True, route_works=True, raised_by_bad_requests=True
    ).let_die_of_bad_request(OTHER)
    assert KeyHistory(raised=True, route_works=True).let_die_of_bad_request(OTHER)


# ---- looks


def test_looks_double_while_they_end_as_expected() -> None:
    """A thousand bad tasks need ten looks."""
    sizes: list[int] = []
    size = 1
    while sum(sizes) < 1000:
        sizes.append(size)
        size = next_size(Look(failed=size), size, vouched=True)

    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert size == MAX_LOOK


@pytest.mark.parametrize(
    ("look", "vouched"), [(Look(failed=3), False), (Look(cancelled=4), True), (Look(), True)]
)
def test_a_look_that_tells_nothing_is_made_again(look: Look, *, vouched: bool) -> None:
    """Such a look's route is silent, or its tasks are cancelled or lose their agents."""
    assert next_size(look, 4, vouched=vouched) == 4


@pytest.mark.parametrize(
    ("look", "places", "late", "over"),
    [
        (Look(failed=2), 0, False, True),
        (Look(failed=2), 1, False, False),  # another task may join it
        (Look(failed=1, waiting=1), 0, False, False),
        (Look(failed=1, waiting=1), 0, True, True),  # it waits too long for its turn
        (Look(failed=1, running=1), 0, True, False),  # a call may take longer than `guard.probe_s`
        (Look(), 0, False, True),
    ],
)
def test_a_look_is_over_when_nothing_more_is_learnt(
    look: Look, places: int, *, late: bool, over: bool
) -> None:
    """Calls that run are waited for, tasks that wait for a while."""
    assert look.over(places=places, late=late) is over


@pytest.mark.parametrize(
    ("look", "cause", "vouched", "in_s"),
    [
        (Look(failed=1), GuardCause.EXHAUSTED, True, 20),
        (Look(failed=1), GuardCause.HANDLER, True, 290),
        (Look(failed=1), GuardCause.EXHAUSTED, False, 290),
        (Look(failed=1), GuardCause.BAD_REQUEST, True, 290),
        (Look(failed=1), GuardCause.WORKER_LOST, True, 290),
        (Look(cancelled=1), GuardCause.BAD_REQUEST, True, 20),
        (Look(cancelled=1, failed=1), GuardCause.BAD_REQUEST, True, 290),
        (Look(), GuardCause.EXHAUSTED, True, 290),
        (Look(failed=1), "of_a_newer_version", True, 290),
    ],
)
def test_looks_follow_fast_only_where_a_call_costs_no_innocent_task(
    look: Look, cause: str, in_s: float, *, vouched: bool
) -> None:
    """A prompt shows nothing of handlers or of killed agents.

    A wrong parameter must cost no more than tens of tasks. Tasks that all run on their fallback
    show nothing of the route, look after look.
    """
    assert next_in_s(look, cause, vouched=vouched, age_s=10.0, probe_s=300.0) == in_s
