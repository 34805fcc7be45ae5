"""Checks each line by what a load knows beside the line itself: types, routes, documents."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from docllm.producer.input.lines import InvalidLine, ValidLine

LineCheck = Callable[[ValidLine], ValidLine | InvalidLine]


def checked(
    lines: Iterable[ValidLine | InvalidLine], checks: Sequence[LineCheck]
) -> Iterator[ValidLine | InvalidLine]:
    """Yield the lines; one that a check refuses becomes a bad line, with the first reason."""
    for read in lines:
        line = read
        for check in checks:
            if isinstance(line, InvalidLine):
                break
            line = check(line)
        yield line
