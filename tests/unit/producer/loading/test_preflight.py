"""The first pass finds what a load would refuse, before anything is loaded."""

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ledger.store import Accepted
from docllm.producer.loading.loader import Summary
from docllm.producer.loading.preflight import Ask, InputDigest, KeyIndex, Preflight
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.executors import InlineExecutor


def line(number: int, key: str, prompt: str = "x") -> ValidLine | InvalidLine:
    return read_line(number, orjson.dumps({"id": key, "prompt": prompt}))


def looked_at(
    lines: Sequence[ValidLine | InvalidLine], ask: Ask | None
) -> tuple[Summary, list[int], list[int]]:
    """Return a first pass's result, with the numbers of refused and of new lines."""
    bad: list[InvalidLine] = []
    new: list[ValidLine] = []
    first = Preflight(
        batch="b", reading=InlineExecutor(), ask=ask, reject=bad.append, is_new=new.append
    )
    return asyncio.run(first.read(lines)), [line.line for line in bad], [line.line for line in new]


def refused(lines: Sequence[ValidLine | InvalidLine], *known_keys: str) -> list[int]:
    """Return the line numbers that a first pass refuses.

    `there` are ids that the ledger has with other content.
    """

    async def ask(tasks: Sequence[NewTask]) -> Accepted:
        clashing = [
            position for position, task in enumerate(tasks) if task.key.decode() in known_keys
        ]
        return Accepted(
            dict.fromkeys(set(range(len(tasks))) - set(clashing), 0), (), tuple(clashing), ()
        )

    return looked_at(lines, ask if known_keys else None)[1]


def test_an_id_with_other_content_clashes_though_millions_may_stand_between() -> None:
    """An id with other content clashes with its first line, however far apart they are.

    The same content again is not refused.
    """
    between = [line(number, f"k{number}") for number in range(2, 1500)]

    assert refused(
        [line(1, "a"), *between, line(1500, "a"), line(1501, "a", "y"), line(1502, "k2", "y")]
    ) == [1501, 1502]


def test_clashes_with_the_ledger_are_refused_in_the_order_of_the_lines() -> None:
    """Lines that clash with the ledger are refused in order, among lines that are no tasks.

    A line that clashes twice is reported once.
    """
    lines = [line(1, "a"), read_line(2, b"{"), line(3, "c"), line(4, "c", "y"), line(5, "e")]

    assert refused(lines, "a", "c") == [1, 2, 3, 4]


def test_a_new_task_is_counted_once() -> None:
    """A new task is counted once: not if the ledger or an earlier line has its id.

    The estimate uses only these tasks.
    """

    async def ask(tasks: Sequence[NewTask]) -> Accepted:
        known = tuple(position for position, task in enumerate(tasks) if task.key == b"c")
        return Accepted(dict.fromkeys(set(range(len(tasks))) - set(known), 0), known, (), ())

    lines = [
        line(1, "a"),
        read_line(2, b"{"),
        line(3, "c"),
        line(4, "a"),
        line(5, "a", "y"),
        line(6, "e"),
        line(7, "c"),
    ]
    summary, bad, new = looked_at(lines, ask)

    assert (bad, new) == ([2, 5], [1, 6])
    assert (summary.new, summary.known, summary.repeated, summary.bad) == (2, 3, 2, 2)


def test_a_full_temporary_folder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder without space is reported, and not as a bug of ours."""
    seen = KeyIndex()
    seen._file.execute("PRAGMA query_only=1")

    with pytest.raises(ConfigError, match="TMPDIR"):
        seen.matching(
            [
                NewTask(
                    key=b"a",
                    digest=b"d",
                    value=b"v",
                    type="t",
                    tenant="n",
                    max_attempts=1,
                    expires_at=None,
                    raw_key=None,
                )
            ]
        )

    seen.close()


@pytest.mark.parametrize(
    "other", [[line(1, "a")], [line(1, "a"), line(2, "b", "y")], [line(1, "a"), read_line(2, b"{")]]
)
def test_an_input_that_changed_has_another_imprint(other: list[ValidLine | InvalidLine]) -> None:
    """An input has another imprint with fewer lines, other content, or a line that is no task."""
    first, again, second = InputDigest(), InputDigest(), InputDigest()
    for each in (line(1, "a"), line(2, "b")):
        first.add(each)
        again.add(each)
    for each in other:
        second.add(each)

    assert first == again
    assert first != second
