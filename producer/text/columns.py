"""A table as lines of coloured text that fit a width. Pure.

Numbers are never shortened, because a shortened number would be wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

_INDENT = "    "  # begins every line of a sentence but the first
GAPS = (2, 1)  # blanks between two columns, the usual number first
_EMPTY_CELLS = frozenset({"", "-", "0", "0+0", "0:00:00", "0.0000"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of text.

    `least` is the number of characters that it may be shortened to; None forbids shortening.
    `style` is that of cells with a figure; a cell without one is dim.
    """

    name: str
    cells: tuple[str, ...]
    left: bool = False
    least: int | None = None
    style: str = ""

    @property
    def empty(self) -> bool:
        """Whether the column carries no information."""
        return _EMPTY_CELLS.issuperset(self.cells)

    def style_of(self, cell: str) -> str:
        """Return the style of a cell."""
        return "dim" if cell in _EMPTY_CELLS else self.style

    @property
    def size(self) -> int:
        """The column's width without shortening."""
        return max(map(cell_len, (self.name, *self.cells)))

    @property
    def least_size(self) -> int:
        """The column's smallest width."""
        if self.least is None:
            return self.size
        return min(self.size, max(self.least, cell_len(self.name)))


def fitted(
    columns: Sequence[Column], width: int, leaving: Sequence[str]
) -> tuple[list[Text], list[str]]:
    """Return the lines of a table, its head first, and the columns that do not fit `width`.

    To fit, columns are first shortened where allowed, then set closer together, then removed in the
    order of `leaving`. An empty column of `leaving` is removed in any case. Nothing is cut: if all
    of that is not enough, the lines are wider than `width`.
    """
    shown = [column for column in columns if column.name not in leaving or not column.empty]
    removed: list[str] = []
    removable = [name for name in leaving if any(column.name == name for column in shown)]
    while (gap := _gap(shown, width)) is None and removable:
        removed.append(removable.pop(0))
        shown = [column for column in shown if column.name != removed[-1]]
    return _lines(shown, width, gap or GAPS[-1]), removed


def _gap(columns: Sequence[Column], width: int) -> int | None:
    """Return the number of blanks between the columns, None if the columns do not fit."""
    return next((gap for gap in GAPS if _least_width(columns, gap) <= width), None)


def _least_width(columns: Sequence[Column], gap: int) -> int:
    return sum(column.least_size for column in columns) + gap * (len(columns) - 1)


def _lines(columns: Sequence[Column], width: int, gap: int) -> list[Text]:
    spare = max(0, width - _least_width(columns, gap))
    sizes = []
    for column in columns:
        sizes.append(min(column.size, column.least_size + spare))
        spare -= sizes[-1] - column.least_size
    head = [Text(column.name, "bold") for column in columns]
    rows = zip(
        *([Text(cell, column.style_of(cell)) for cell in column.cells] for column in columns),
        strict=True,
    )
    return [_line(columns, row, sizes, gap) for row in (head, *rows)]


def _line(columns: Sequence[Column], row: Sequence[Text], sizes: Sequence[int], gap: int) -> Text:
    for column, cell, size in zip(columns, row, sizes, strict=True):
        cell.truncate(size, overflow="ellipsis")
        blanks = size - cell.cell_len
        cell.pad_right(blanks) if column.left else cell.pad_left(blanks)
    line = Text(" " * gap).join(row)
    line.rstrip()
    return line


def folded(parts: Sequence[Text], width: int) -> Text:
    """Return parts with commas between them, on as many lines as they need; no part is broken."""
    lines = [Text()]
    for place, part in enumerate(parts):
        piece = part if place == len(parts) - 1 else part + Text(",")
        blank = " " if lines[-1].plain.strip() else ""
        if blank and lines[-1].cell_len + 1 + piece.cell_len > width:
            lines.append(Text(_INDENT))
            blank = ""
        lines[-1] = lines[-1] + Text(blank) + piece
    return Text("\n").join(lines)
