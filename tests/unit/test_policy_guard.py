"""When tasks fail as a whole: the rule, case by case."""

import pytest

from agent.outcome import Failure, Spent
from agent.policy import Tier
from agent.policy.guard import Cause, Ended, Watch, moved

ERROR, OTHER = b"e" * 16, b"o" * 16


def stamp(number: int) -> bytes:
    return number.to_bytes(16, "big")


def deaths_until_raised(watch: Watch, *stamps: bytes) -> int:
    """Let tasks fail for good until one is held back; return how many died."""
    for died, one in enumerate(stamps):
        if not watch.may_die(one):
            return died
    return len(stamps)


def test_a_failure_is_death_while_the_route_works() -> None:
    """One task that fails for good among others is its own fault."""
    watch = Watch(raised=False, route_works=True)

    assert watch.may_die(ERROR)
    assert (watch.raised, watch.cause) == (False, None)


def test_nothing_dies_on_a_route_that_works_for_nobody() -> None:
    """The first failure raises the guard and waits."""
    watch = Watch(raised=False, route_works=False)

    assert not watch.may_die(ERROR)
    assert (watch.raised, watch.cause) == (True, Cause.NO_SUCCESS)
    assert watch.why == "nothing succeeded on the route for 10 minutes"


def test_nothing_dies_while_the_guard_is_raised() -> None:
    """A guard that is up is not raised again."""
    watch = Watch(raised=True, route_works=True)

    assert not watch.may_die(ERROR)
    assert watch.cause is None


def test_ten_deaths_in_a_row_for_one_error_are_the_limit() -> None:
    """After many successes too: the tenth dies, the eleventh waits."""
    watch = Watch(raised=False, route_works=True, lately=[Ended(None, 5000)])

    assert deaths_until_raised(watch, *[ERROR] * 20) == 10
    assert watch.cause is Cause.EXHAUSTED
    assert watch.why == "the last 10 tasks were given up on for the same error"


@pytest.mark.parametrize("between", [lambda watch: watch.other(), lambda watch: watch.may_die(OTHER)])
def test_a_row_is_broken_by_anything_else(between: object) -> None:
    """A success, a death of its own input, or another error begin a new row."""
    watch = Watch(raised=False, route_works=True, lately=[Ended(None, 5000)])
    deaths_until_raised(watch, *[ERROR] * 9)

    between(watch)  # type: ignore[operator]

    assert deaths_until_raised(watch, *[ERROR] * 20) == 10


def test_more_deaths_than_others_are_a_failure_as_a_whole() -> None:
    """Errors that differ count together: beyond ten, and beyond half of what ended."""
    watch = Watch(raised=False, route_works=True, lately=[Ended(None, 20)])

    assert deaths_until_raised(watch, *map(stamp, range(1, 100))) == 21
    assert watch.why == "21 of the last 41 tasks were given up on"


def test_half_is_not_more_than_half() -> None:
    """As many deaths as successes are borne for ever."""
    watch = Watch(raised=False, route_works=True)
    for number in range(1, 500):
        watch.other()
        assert watch.may_die(stamp(number))


def test_fewer_than_ten_deaths_are_never_a_failure_as_a_whole() -> None:
    """Nine tasks of a batch of nine die of nine errors."""
    watch = Watch(raised=False, route_works=True)

    assert deaths_until_raised(watch, *map(stamp, range(1, 10))) == 9
    assert not watch.raised


def test_what_other_agents_settled_counts_in_the_order_in_which_it_was() -> None:
    """The newest comes first; several that ended alike are one count."""
    same = [Ended(ERROR, 4), Ended(ERROR, 5), Ended(None, 90)]

    assert deaths_until_raised(Watch(raised=False, route_works=True, lately=same), *[ERROR] * 5) == 1
    assert deaths_until_raised(Watch(raised=False, route_works=True, lately=same[::-1]), *[ERROR] * 5) == 5


def test_what_is_moved_comes_back_spread_over_a_fifth_of_the_tier() -> None:
    """A million tasks that were moved in one hour do not return in one second."""
    tier, failure = Tier("1h", 3600.0), Failure("GUARD", "why")
    delays = {moved(failure, Spent(), tier, number).delay_s for number in range(10_000, 11_000)}

    assert (moved(failure, Spent(), tier, 7).tier, moved(failure, Spent(), tier, 7).failure) == ("1h", failure)
    assert len(delays) > 900
    assert min(delays) >= 3600
    assert max(delays) <= 3600 * 1.2
