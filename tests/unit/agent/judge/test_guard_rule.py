"""The guard's rule for tasks that fail as a whole, case by case."""

from collections import Counter

import pytest

from docllm.agent.judge.guard_rule import (
    BAD_REQUESTS,
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


def test_a_failure_is_death_while_the_route_works() -> None:
    """A task that fails for good among successes is itself at fault."""
    history = KeyHistory(raised=False, route_works=True)

    assert history.let_die(ERROR)
    assert (history.raised, history.cause) == (False, None)


def test_nothing_dies_on_a_route_that_works_for_nobody() -> None:
    """The first failure raises the guard and waits; the guard says what is known, not more."""
    history = KeyHistory(
        raised=False,
        route_works=False,
        silence="nothing has succeeded on this route in this group yet",
    )

    assert not history.let_die(ERROR)
    assert (history.raised, history.cause) == (True, GuardCause.NO_SUCCESS)
    assert history.why == "nothing has succeeded on this route in this group yet"


def test_nothing_dies_while_the_guard_is_raised() -> None:
    """While the guard is raised, no task dies and it is not raised again."""
    history = KeyHistory(raised=True, route_works=True)

    assert not history.let_die(ERROR)
    assert history.cause is None


def test_ten_deaths_in_a_row_for_one_error_are_the_limit() -> None:
    """Ten deaths in a row for one error are the limit: the eleventh task waits.

    Earlier successes do not change that.
    """
    history = KeyHistory(raised=False, route_works=True, recent_ends=[EndCount(None, 5000)])

    assert deaths_until_raised(history, *[ERROR] * 20) == 10
    assert history.cause is GuardCause.EXHAUSTED
    assert history.why == "the last 10 tasks were given up on for the same error"


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


def test_half_is_not_more_than_half() -> None:
    """As many deaths as successes are accepted for ever."""
    history = KeyHistory(raised=False, route_works=True)
    for number in range(1, 500):
        history.count_own_death()
        assert history.let_die(error_of(number))


def test_fewer_than_ten_deaths_are_never_a_failure_as_a_whole() -> None:
    """Nine tasks of a batch of nine may die of nine errors."""
    history = KeyHistory(raised=False, route_works=True)

    assert deaths_until_raised(history, *map(error_of, range(1, 10))) == 9
    assert not history.raised


def test_outcomes_of_all_agents_count_in_their_order() -> None:
    """Settlements of other agents count in their order, newest first.

    Several equal ones in a row are one count.
    """
    same = [EndCount(ERROR, 4), EndCount(ERROR, 5), EndCount(None, 90)]

    assert (
        deaths_until_raised(
            KeyHistory(raised=False, route_works=True, recent_ends=same), *[ERROR] * 5
        )
        == 1
    )
    assert (
        deaths_until_raised(
            KeyHistory(raised=False, route_works=True, recent_ends=same[::-1]), *[ERROR] * 5
        )
        == 5
    )


def test_failures_of_a_handler_are_a_cause_of_their_own() -> None:
    """A provider that answers tells nothing of a handler."""
    history = KeyHistory(raised=False, route_works=True)

    for _ in range(10):
        history.let_die(ERROR, of_call=False)

    assert history.cause is GuardCause.HANDLER


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


def test_a_dozen_refusals_for_one_reason_are_the_limit_of_a_key_without_success() -> None:
    """A wrong parameter is refused for every task."""
    history = KeyHistory(raised=False, route_works=True, has_no_success=True)

    assert refused_until_raised(history, *[ERROR] * 400) == BAD_REQUESTS == 12
    assert history.cause is GuardCause.BAD_REQUEST
    assert (
        history.why
        == "all 12 tasks that ended were refused for the same reason, and none has succeeded"
    )


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


def test_after_one_success_no_refusal_is_the_keys_fault() -> None:
    """A batch with some bad tasks has its first success soon."""
    history = KeyHistory(raised=False, route_works=True, has_no_success=True)
    assert refused_until_raised(history, *[ERROR] * 11) == 11

    history.count_success()

    assert refused_until_raised(history, *[ERROR] * 100) == 100


def test_earlier_refusals_count() -> None:
    """By other agents, or minutes ago."""
    history = KeyHistory(
        raised=False,
        route_works=True,
        has_no_success=True,
        ended=11,
        bad_requests=Counter({ERROR: 11}),
    )

    assert refused_until_raised(history, *[ERROR] * 5) == 1


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
