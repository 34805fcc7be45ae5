"""A row of numbers as a row of bars, one character each. Pure."""

from collections.abc import Sequence

_BLOCKS = "\N{LOWER ONE EIGHTH BLOCK}\N{LOWER ONE QUARTER BLOCK}\N{LOWER THREE EIGHTHS BLOCK}"
_BLOCKS += "\N{LOWER HALF BLOCK}\N{LOWER FIVE EIGHTHS BLOCK}\N{LOWER THREE QUARTERS BLOCK}"
_BLOCKS += "\N{LOWER SEVEN EIGHTHS BLOCK}\N{FULL BLOCK}"
_ASCII = ":-=+*#%@"
_NONE = "."  # stands for 0, so that the minute can be seen


def sparkline(numbers: Sequence[int], encoding: str | None) -> str:
    """Return a bar for each number, the highest for the largest; a dot for 0.

    An output in an `encoding` without block characters gets ASCII in place of them.
    """
    bars = _BLOCKS if _can_show(_BLOCKS, encoding) else _ASCII
    most = max(numbers, default=0)
    return "".join(
        bars[(number * len(bars) - 1) // most] if number > 0 else _NONE for number in numbers
    )


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
