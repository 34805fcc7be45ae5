"""What is stored of a rejected record."""

from collections.abc import Iterator

import orjson
import pytest

from docllm.producer.ledger.quarantine import KEPT_HEADER_BYTES, headers_blob
from docllm.schemas.task.batch_name import is_batch_name
from docllm.schemas.task.record.envelope import RawHeaders


@pytest.mark.parametrize("value_bytes", [0, 1, 100, KEPT_HEADER_BYTES])
def test_headers_are_kept_from_the_first_as_far_as_there_is_room(value_bytes: int) -> None:
    """Headers are stored from the first on while there is room; one more would be too much."""
    headers: RawHeaders = [(f"h{number}", b"v" * value_bytes) for number in range(2000)]

    kept = orjson.loads(headers_blob(headers))

    pairs = [[name, (value or b"").decode()] for name, value in headers]
    assert kept == pairs[: len(kept)]
    assert len(orjson.dumps(kept)) <= KEPT_HEADER_BYTES < len(orjson.dumps(pairs[: len(kept) + 1]))


def test_few_headers_are_kept_whole() -> None:
    """A few headers are stored whole: bytes that are not UTF-8 as escapes, no value as null."""
    assert orjson.loads(headers_blob([("a", b"\xff"), ("b", None)])) == [
        ["a", "\\xff"],
        ["b", None],
    ]
    assert headers_blob([]) == b"[]"


@pytest.mark.parametrize(
    "before",
    [("docllm-note", b"x" * 9000), ("docllm-a", b"x" * KEPT_HEADER_BYTES), ("other", b"x" * 9000)],
)
def test_the_batch_header_is_kept_beside_any_other(before: tuple[str, bytes]) -> None:
    """The batch header is stored, whatever the other headers are.

    A producer's header with docllm's prefix used to take its room, and a replay made a task of
    `<group>-direct`.
    """
    assert orjson.loads(headers_blob([before, ("docllm-batch", b"invoices")]))[0] == [
        "docllm-batch",
        "invoices",
    ]


@pytest.mark.parametrize(
    "before",
    [[("h", b"")] * 9000, [("docllm-batch", b"d" * 1000)] * 9],
    ids=["many headers", "many batches"],
)
def test_of_many_headers_the_batch_that_counts_is_kept(
    before: list[tuple[str, bytes | None]],
) -> None:
    """Of several batch headers, the last one is stored, which counts for the record itself.

    Otherwise a replay would put the task into another batch.
    """
    batches = [
        value
        for name, value in orjson.loads(headers_blob([*before, ("docllm-batch", b"night")]))
        if name == "docllm-batch"
    ]

    assert batches[-1] == "night"


def test_a_batch_that_is_no_name_is_kept_as_such() -> None:
    """A batch header that is no valid name is stored as such.

    If it were left out for its size, the record would become a task of the group's own batch.
    """
    ((name, value),) = orjson.loads(headers_blob([("docllm-batch", b"x" * 100_000)]))

    assert name == "docllm-batch"
    assert not is_batch_name(value)


def test_of_very_many_headers_only_the_first_are_looked_at() -> None:
    """Of very many headers, only the first ones are looked at.

    A record of 4 MiB may have half a million headers. An agent that encoded them all repeatedly
    stood still for hours.
    """
    looked_at = 0

    class Many(list[tuple[str, bytes | None]]):
        def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
            nonlocal looked_at
            for row in super().__iter__():
                looked_at += 1
                yield row

    headers_blob(Many([("", b"")] * 500_000))

    assert looked_at <= KEPT_HEADER_BYTES
