"""The tests that take long: they begin first, dealt out among the workers, so that none ends alone.

`tests/longest.txt` names them, with the seconds they once took on two quiet cores. A run prints the
lines that the list lacks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
MISSED_S = 30.0  # a test that takes longer belongs in the list


def listed() -> dict[str, int]:
    """Return the seconds of each test in the list."""
    lines = [line.split(maxsplit=1) for line in LIST.read_text("utf-8").splitlines()]
    return {name: int(seconds) for seconds, name in lines}


def dealt(names: Sequence[str], seconds: Mapping[str, int], workers: int) -> Iterator[str]:
    """Yield the names in an order in which each worker's share begins with long tests.

    With `--dist worksteal` each worker gets an equal share of the tests, in this order, and one
    that has no more takes over the end of another's share.
    """
    long = sorted(seconds.keys() & set(names), key=lambda name: (-seconds[name], name))
    short = (name for name in names if name not in seconds)
    left = len(names)
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
    long = [(took_s, name) for name, took_s in took if took_s > MISSED_S and name not in seconds]
    return [f"{took_s:.0f} {name}" for took_s, name in sorted(long, reverse=True)]
