"""A table as lines of text that fit a width without cutting a figure, since a cut figure is a wrong one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

GAPS = (2, 1)
_NOTHING = frozenset({"", "-", "0", "0+0", "0:00:00", "0.0000"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of text. `least`: to how many characters it may be shortened, not at all when it is None."""

    name: str
    cells: tuple[str, ...]
    left: bool = False
    least: int | None = None

    @property
    def empty(self) -> bool:
        """Return whether it tells of nothing."""
        return _NOTHING.issuperset(self.cells)

    @property
    def size(self) -> int:
        """Return how wide it is when nothing of it is shortened."""
        return max(map(cell_len, (self.name, *self.cells)))

    @property
    def least_size(self) -> int:
        """Return how wide it is at the least."""
        return self.size if self.least is None else min(self.size, max(self.least, cell_len(self.name)))


def fitted(columns: Sequence[Column], width: int, leaving: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines of a table, the names first, and the names of the columns that `width` has no room for.

    What is too wide is shortened where it may be, then set closer, and then the columns of `leaving` leave, the first one first. An
    empty column leaves in any case if it is one of them. Nothing is cut: where all of that is not enough, the lines are wider.
    """
    kept = [one for one in columns if one.name not in leaving or not one.empty]
    gone: list[str] = []
    waiting = [name for name in leaving if any(one.name == name for one in kept)]
    while (gap := _gap(kept, width)) is None and waiting:
        gone.append(waiting.pop(0))
        kept = [one for one in kept if one.name != gone[-1]]
    return _lines(kept, width, gap or GAPS[-1]), gone


def _gap(columns: Sequence[Column], width: int) -> int | None:
    """Return how many blanks can stand between the columns, None when they have no room even so."""
    return next((gap for gap in GAPS if _least(columns, gap) <= width), None)


def _least(columns: Sequence[Column], gap: int) -> int:
    return sum(one.least_size for one in columns) + gap * (len(columns) - 1)


def _lines(columns: Sequence[Column], width: int, gap: int) -> list[str]:
    spare = max(0, width - _least(columns, gap))
    sizes = []
    for one in columns:
        sizes.append(min(one.size, one.least_size + spare))
        spare -= sizes[-1] - one.least_size
    rows = zip(*((one.name, *one.cells) for one in columns), strict=True)
    return [_line(columns, row, sizes, " " * gap) for row in rows]


def _line(columns: Sequence[Column], row: Sequence[str], sizes: Sequence[int], between: str) -> str:
    cells = [_cell(text, size, left=one.left) for one, text, size in zip(columns, row, sizes, strict=True)]
    return between.join(cells).rstrip()


def _cell(text: str, size: int, *, left: bool) -> str:
    cell = Text(text)
    cell.truncate(size, overflow="ellipsis")
    blanks = " " * (size - cell.cell_len)
    return f"{cell.plain}{blanks}" if left else f"{blanks}{cell.plain}"
