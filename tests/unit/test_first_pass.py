"""What a load would refuse is found before it loads anything."""

import asyncio
from collections.abc import Collection, Sequence

import orjson
import pytest

from producer.first_pass import FirstPass, Imprint, Seen
from producer.lines import Bad, Good, read_line
from producer.store import NewTask
from schemas.errors import ConfigError
from schemas.lanes import InlineLane


def line(number: int, key: str, prompt: str = "x") -> Good | Bad:
    return read_line(number, orjson.dumps({"id": key, "prompt": prompt}))


def refused(lines: Sequence[Good | Bad], *there: str) -> list[int]:
    """Return the numbers of the lines that a first pass refuses; `there` are ids that the ledger has with other content."""
    found: list[Bad] = []

    async def ask(tasks: Sequence[NewTask]) -> Collection[int]:
        return [position for position, task in enumerate(tasks) if task.key.decode() in there]

    asyncio.run(FirstPass(batch="b", reading=InlineLane(), ask=ask if there else None, reject=found.append).read(lines))
    return [one.line for one in found]


def test_an_id_with_other_content_clashes_though_millions_may_stand_between() -> None:
    """The first one counts; the same content again is none to refuse."""
    between = [line(number, f"k{number}") for number in range(2, 1500)]

    assert refused([line(1, "a"), *between, line(1500, "a"), line(1501, "a", "y"), line(1502, "k2", "y")]) == [1501, 1502]


def test_what_clashes_with_the_ledger_is_refused_in_the_order_of_the_lines() -> None:
    """A line that is no task stands among them, and one that clashes twice is told once."""
    lines = [line(1, "a"), read_line(2, b"{"), line(3, "c"), line(4, "c", "y"), line(5, "e")]

    assert refused(lines, "a", "c") == [1, 2, 3, 4]


def test_a_temporary_folder_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no bug of ours."""
    seen = Seen()
    seen._file.execute("PRAGMA query_only=1")

    with pytest.raises(ConfigError, match="TMPDIR"):
        seen.clashing([NewTask(b"a", b"d", b"v", "t", "n", 1, None, None)])

    seen.close()


@pytest.mark.parametrize("other", [[line(1, "a")], [line(1, "a"), line(2, "b", "y")], [line(1, "a"), read_line(2, b"{")]])
def test_an_input_that_changed_has_another_imprint(other: list[Good | Bad]) -> None:
    """Fewer lines, other content, or no task any more."""
    first, again, second = Imprint(), Imprint(), Imprint()
    for each in (line(1, "a"), line(2, "b")):
        first.add(each)
        again.add(each)
    for each in other:
        second.add(each)

    assert first == again
    assert first != second
