"""The tests that take long: they begin first, dealt out among the workers.

`tests/longest.txt` names a file, or a test by its id, with about the seconds of the longest test on
two quiet cores: only their order counts. A file with 0 is not dealt out: each worker that got one
of its tests would start the same servers. A run prints the lines that the list lacks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
MISSED_S = 30.0  # a file with a test that takes longer belongs in the list


def listed() -> dict[str, int]:
    """Return the seconds of each file and test in the list."""
    lines = [line.split() for line in LIST.read_text("utf-8").splitlines()]
    return {name: int(seconds) for seconds, name in lines}


def file_of(test: str) -> str:
    """Return the file of a test's id."""
    return test.partition("::")[0]


def known_s(test: str, seconds: Mapping[str, int]) -> int:
    """Return the seconds that the list has for a test or its file, 0 if it has none."""
    return seconds.get(test) or seconds.get(file_of(test)) or 0


def dealt(tests: Sequence[str], seconds: Mapping[str, int], workers: int) -> Iterator[str]:
    """Yield the tests in an order in which each worker's share begins with long ones.

    With `--dist worksteal` each worker gets an equal share of the tests, in this order, and one
    that has no more takes over the end of another's share.
    """
    long = sorted(
        (test for test in tests if known_s(test, seconds)), key=lambda test: -known_s(test, seconds)
    )
    short = (test for test in tests if not known_s(test, seconds))
    left = len(tests)
    for worker in range(workers):
        size = left // (workers - worker)
        left -= size
        # The last share is the largest, so the dealing goes backwards.
        own = long[workers - 1 - worker :: workers]
        yield from own
        yield from islice(short, max(0, size - len(own)))
    yield from short


def missing(took: Iterable[tuple[str, float]], seconds: Mapping[str, int]) -> list[str]:
    """Return the lines that the list lacks, the longest first."""
    longest: dict[str, float] = {}
    for test, took_s in took:
        if took_s > MISSED_S and seconds.keys().isdisjoint({test, file_of(test)}):
            longest[file_of(test)] = max(took_s, longest.get(file_of(test), 0.0))
    lacking = sorted(((took_s, name) for name, took_s in longest.items()), reverse=True)
    return [f"{took_s:.0f} {name}" for took_s, name in lacking]
