"""The tests that take long begin first, and the list of them names tests that exist."""

from pathlib import Path

import pytest

from tests.longest import dealt, listed, missing

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("others", [0, 1, 40])
def test_each_share_begins_with_long_tests(workers: int, others: int) -> None:
    """The shares are those that the workers get, and the longest test begins a share."""
    seconds = {f"long {number}": 100 - number for number in range(12)}
    names = [f"short {number}" for number in range(others)] + list(seconds)

    order = list(dealt(names, seconds, workers))

    assert sorted(order) == sorted(names)
    left, firsts = order, []
    for worker in range(workers):
        size = len(left) // (workers - worker)
        share, left = left[:size], left[size:]
        long = [name for name in share if name in seconds]
        assert share[: len(long)] == long == sorted(long, key=lambda name: -seconds[name])
        assert 12 // workers - 1 <= len(long) <= 12 // workers + 1
        firsts.append(share[0])
    assert "long 0" in firsts


def test_a_long_test_that_is_not_run_is_left_out() -> None:
    """A run of some tests orders only these."""
    assert list(dealt(["a", "b"], {"c": 9, "b": 5}, 1)) == ["b", "a"]


def test_every_test_in_the_list_exists() -> None:
    """A test that was renamed or removed leaves the list."""
    for name in listed():
        path, _, function = name.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / path).read_text("utf-8"), name


def test_long_tests_that_are_not_listed_are_printed() -> None:
    """The lines are those to add, the longest first; listed and short tests are not among them."""
    took = {"listed": 90.0, "quick": 29.0, "slow": 31.2, "slower": 75.0}

    assert missing(took.items(), {"listed": 10}) == ["75 slower", "31 slow"]
