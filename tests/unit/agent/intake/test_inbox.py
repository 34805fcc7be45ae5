"""The limits of the inbox's memory and of its transactions."""

import pytest

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Inbox
from docllm.agent.ports import Partition, Record
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from tests.support.source import FakeSource

INBOX = Partition("group.inbox", "id", 0, 1)
LIMITS = InFlightLimits()


def new_inbox() -> tuple[Inbox, FakeSource]:
    source = FakeSource()
    partitions = Partitions({INBOX.topic: source}, limits=LIMITS)
    partitions.assign((INBOX,))
    return Inbox(partitions=partitions, limits=LIMITS), source


def records(count: int, size: int, first: int = 0) -> list[Record]:
    value = bytes(size)
    return [
        Record(partition=INBOX, offset=offset, timestamp_ms=0, key=None, value=value, headers=[])
        for offset in range(first, first + count)
    ]


def added(inbox: Inbox, records: list[Record]) -> None:
    inbox.add(records)
    inbox.pause_or_resume()


def test_large_lines_are_read_no_further_when_they_fill_the_memory() -> None:
    """Large lines pause the inbox when they fill the memory, and it resumes later.

    A stalled database would otherwise let thousands of lines of 3 MiB pile up.
    """
    inbox, source = new_inbox()
    most = LIMITS.inbox_bytes // MAX_TASK_BYTES
    added(inbox, records(most, MAX_TASK_BYTES))
    assert not source.paused

    added(inbox, records(1, MAX_TASK_BYTES, first=most))
    assert source.paused == {INBOX}

    while inbox.take_page():
        pass
    inbox.pause_or_resume()
    assert not source.paused


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (bytes(MAX_TASK_BYTES), []),
        (None, [("h", bytes(MAX_TASK_BYTES))]),
        (None, [("h", b"")] * 20_000),
    ],
)
def test_keys_and_headers_fill_the_memory_as_lines_do(
    key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """Keys and headers count as memory, because a producer may write any number of them.

    Many small headers take more memory than their text.
    """
    inbox, source = new_inbox()

    added(
        inbox,
        [
            Record(
                partition=INBOX,
                offset=offset,
                timestamp_ms=0,
                key=key,
                value=b"{}",
                headers=headers,
            )
            for offset in range(LIMITS.inbox_bytes // MAX_TASK_BYTES + 1)
        ],
    )
    assert source.paused == {INBOX}

    assert len(inbox.take_page()) == 2
    while inbox.take_page():
        pass
    inbox.pause_or_resume()
    assert not source.paused


def test_a_page_fits_one_transaction() -> None:
    """A page is limited by its lines and by their bytes."""
    inbox, _ = new_inbox()
    added(inbox, records(20, MAX_TASK_BYTES))
    added(inbox, records(1000, 10, first=20))

    sizes = []
    while page := inbox.take_page():
        sizes.append((len(page), sum(len(record.value or b"") for record in page)))

    assert sum(count for count, _ in sizes) == 1020
    assert all(
        count <= LIMITS.inbox_page and size < LIMITS.inbox_page_bytes + MAX_TASK_BYTES
        for count, size in sizes
    )
    assert max(count for count, _ in sizes) == LIMITS.inbox_page
