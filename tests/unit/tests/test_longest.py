"""The tests that take long begin first, and the list of them names what exists."""

from pathlib import Path

import pytest

from tests.longest import dealt, file_of, listed, missing

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("others", [0, 1, 40])
def test_each_share_begins_with_long_tests(workers: int, others: int) -> None:
    """The shares are those that the workers get, and the longest tests begin a share."""
    seconds = {"a.py": 20, "b.py": 100}
    long = [f"{name}::test_{number}" for name in seconds for number in range(6)]
    tests = [f"short.py::test_{number}" for number in range(others)] + long

    order = list(dealt(tests, seconds, workers))

    assert sorted(order) == sorted(tests)
    left, firsts = order, []
    for worker in range(workers):
        size = len(left) // (workers - worker)
        share, left = left[:size], left[size:]
        own = [seconds[file_of(test)] for test in share if file_of(test) in seconds]
        assert own == sorted(own, reverse=True)
        assert 12 // workers - 1 <= len(own) <= 12 // workers + 1
        firsts += own[:1]
    assert firsts == [100] * workers


def test_a_file_that_is_not_run_is_left_out() -> None:
    """A run of some tests orders only these."""
    assert list(dealt(["a.py::t", "b.py::t"], {"c.py": 9, "b.py": 5}, 1)) == ["b.py::t", "a.py::t"]


def test_a_test_can_be_listed_without_the_rest_of_its_file() -> None:
    """A file of short tests may have a long one."""
    assert list(dealt(["a.py::t", "a.py::u"], {"a.py::u": 9}, 1)) == ["a.py::u", "a.py::t"]


def test_what_is_in_the_list_exists() -> None:
    """A file or test that was renamed or removed leaves the list."""
    for name in listed():
        path, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / path).read_text("utf-8"), name


def test_files_that_the_list_lacks_are_told() -> None:
    """The lines are those to add, the longest first; a file counts by its longest test."""
    took = {"listed.py::t": 90.0, "a.py::t": 29.0, "b.py::t": 75.0, "b.py::u": 9.0, "c.py::t": 31.2}

    assert missing(took.items(), {"listed.py": 10}) == ["75 b.py", "31 c.py"]
