"""A release is named for failing more often than the others, and never for an outage."""

import random
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.ledger.status.releases import (
    DEVIATIONS,
    Comparison,
    Minute,
    compared,
)

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - the ledger's times are UTC without a zone
OLD, NEW = "1.0", "2.0"


def minute(release: str, number: int, attempts: int, failed: int, route: str = "r") -> Minute:
    began = NOON + timedelta(minutes=number)
    return Minute(
        release=release, route=route, began=began, succeeded=attempts - failed, failed=failed
    )


def drawn(draw: random.Random, attempts: int, rate: float, burst: float = 1.0) -> int:
    """Return how many of the attempts fail at this rate; a burst hits many at once or none."""
    if draw.random() >= 1 / burst:
        return 0
    return sum(draw.random() < rate * burst for _ in range(attempts))


def hour(seed: int, *, old: float, new: float, burst: float = 1.0) -> Iterator[Minute]:
    """Yield an hour in which a tenth of the work goes to a new release."""
    draw = random.Random(seed)  # noqa: S311 - it protects nothing
    for number in range(60):
        yield minute(OLD, number, 90, drawn(draw, 90, old, burst))
        yield minute(NEW, number, 10, drawn(draw, 10, new, burst))


def worse(minutes: Iterable[Minute]) -> list[str]:
    return [name for name, comparison in compared(minutes).items() if comparison.is_worse]


def test_a_release_that_fails_more_often_is_named() -> None:
    """The rates are those of the minutes that both share."""
    minutes = [minute(OLD, number, 100, 2) for number in range(20)]
    minutes += [minute(NEW, number, 50, 5) for number in range(20)]
    alone = [minute(NEW, number, 1000, 1000) for number in range(30, 60)]

    found = compared([*minutes, *alone])

    assert worse([*minutes, *alone]) == [NEW]
    assert (found[NEW].attempts, found[NEW].failure_rate) == (1000, 0.1)
    assert found[NEW].others_rate == pytest.approx(0.02)
    assert found[OLD].deviations == pytest.approx(-found[NEW].deviations)


def test_a_small_difference_is_no_reason() -> None:
    """However certain it is: below two points nobody need act."""
    minutes = [minute(OLD, number, 100_000, 1000) for number in range(60)]
    minutes += [minute(NEW, number, 100_000, 2500) for number in range(60)]

    assert compared(minutes)[NEW].deviations > DEVIATIONS
    assert worse(minutes) == []


def test_an_outage_blames_nobody() -> None:
    """Everything fails in some minutes, and the new release works most of all in these."""
    minutes = [minute(OLD, number, 1000, 10) for number in range(50)]
    minutes += [minute(NEW, number, 10, 0) for number in range(50)]
    minutes += [minute(OLD, number, 100, 90) for number in range(50, 60)]
    minutes += [minute(NEW, number, 1000, 900) for number in range(50, 60)]

    assert worse(minutes) == []
    assert compared(minutes)[NEW].failure_rate > 0.8


def test_a_route_that_fails_blames_nobody() -> None:
    """The new release has most of the work of a bad route."""
    minutes = [
        minute(release=OLD, number=number, attempts=100, failed=1, route="good")
        for number in range(60)
    ]
    minutes += [
        minute(release=NEW, number=number, attempts=10, failed=0, route="good")
        for number in range(60)
    ]
    minutes += [
        minute(release=OLD, number=number, attempts=10, failed=5, route="bad")
        for number in range(60)
    ]
    minutes += [
        minute(release=NEW, number=number, attempts=100, failed=50, route="bad")
        for number in range(60)
    ]

    assert worse(minutes) == []


def test_one_bad_minute_is_one_event() -> None:
    """A burst, as when one agent's network is down for a minute, is not how the release works."""
    minutes = [minute(OLD, number, 100, 1) for number in range(60)]
    minutes += [minute(NEW, number, 100, 1) for number in range(59)]
    minutes += [minute(NEW, 59, 500, 500)]

    assert worse(minutes) == []


def test_chance_and_bursts_name_hardly_any_release() -> None:
    """Equal releases, at several rates; a release that is really worse is found nearly always."""
    equal = [
        worse(hour(seed, old=rate, new=rate, burst=burst))
        for seed in range(60)
        for rate in (0.01, 0.05, 0.2)
        for burst in (1.0, 4.0)
    ]
    different = [worse(hour(seed, old=0.02, new=0.15)) for seed in range(60)]

    assert sum(map(bool, equal)) <= len(equal) * 0.02
    assert sum(named == [NEW] for named in different) >= len(different) * 0.9


@given(
    st.lists(
        st.builds(
            minute,
            st.sampled_from([OLD, NEW, "3.0"]),
            st.integers(0, 5),
            st.integers(0, 20),
            st.just(0),
        )
    )
)
def test_without_failures_no_release_is_worse(minutes: list[Minute]) -> None:
    """Nothing is divided by zero, and rates are rates."""
    for comparison in compared(minutes).values():
        assert comparison == Comparison(comparison.attempts, 0.0, 0.0, 0.0)
        assert not comparison.is_worse
