"""How many seeds each planted bug needs to be caught: the table of docs/explanation/proof.md.

The tests read the table too.
"""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "proof.md"
HEAD = "| planted bug | promise | seeds needed |\n|---|---|---|"
_LINE = re.compile(r"^\| ([^|`]+) \| (P[1-9]) \| (\d+) \|$", re.MULTILINE)


def read() -> dict[str, int]:
    """Return how many seeds each bug needed when it was last measured."""
    return {name: int(seeds) for name, _, seeds in _LINE.findall(PAGE.read_text())}


def line(name: str, seeds: int) -> str:
    """Return a bug's line of the table."""
    # The table of bugs is made of modules that do not need this one.
    from tests.simulation.bugs import BUGS  # noqa: PLC0415

    return f"| {name} | {BUGS[name].promise} | {seeds or 'NOT CAUGHT'} |"


def write(seeds: dict[str, int]) -> None:
    """Write the table anew."""
    from tests.simulation.bugs import BUGS  # noqa: PLC0415 - as in `line`

    text = PAGE.read_text()
    begin = text.index(HEAD) + len(HEAD)
    end = text.index("\n\n", begin)
    PAGE.write_text(
        text[:begin] + "".join(f"\n{line(name, seeds.get(name, 0))}" for name in BUGS) + text[end:]
    )
