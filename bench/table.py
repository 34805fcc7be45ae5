"""Figures and their table: what was measured, on which parts, beside its goal. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_HEADINGS = ("measured", "on", "figure", "unit", "goal", "figure/goal", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement.

    `goal` is the largest value or, with `at_least`, the smallest; None means no goal.
    """

    what: str
    parts: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False

    @property
    def reached(self) -> bool:
        """Return whether the goal is reached; a figure without a goal reaches it."""
        return self.goal is None or (
            self.value >= self.goal if self.at_least else self.value <= self.goal
        )


def render(figures: Iterable[Figure]) -> str:
    """Return the table."""
    rows: list[Sequence[str]] = [_HEADINGS, *(_cells(one) for one in figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            _placed(cell, width, place)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _cells(one: Figure) -> Sequence[str]:
    if one.goal is None:
        return one.what, one.parts, _number(one.value), one.unit, "", "", ""
    goal = f"{'>=' if one.at_least else '<='} {_number(one.goal)}"
    return (
        one.what,
        one.parts,
        _number(one.value),
        one.unit,
        goal,
        f"{one.value / one.goal:.2f}" if one.goal else "",
        "ok" if one.reached else "MISSED",
    )


def _placed(cell: str, width: int, place: int) -> str:
    return cell.rjust(width) if place in {2, 5} else cell.ljust(width)


def _number(value: float) -> str:
    # Three digits that say something.
    digits = 0 if value >= 100 else 1 if value >= 10 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f}"
