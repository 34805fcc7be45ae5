"""The limits of the intake's memory and of its transactions."""

import pytest

from agent.inflight.limits import InFlightLimits
from agent.inflight.partitions import Partitions
from agent.intake.acceptance import Intake
from agent.ports import Assigned, Partition, Record, Recreated, Revoked, SourceFailed
from agent.process.failures import Failures
from agent.reporting.telemetry import Counts
from schemas.task.record.envelope import MAX_TASK_BYTES
from tests.support.intake import new_intake
from tests.support.source import FakeSource

INBOX = Partition("group.inbox", "id", 0, 1)
LIMITS = InFlightLimits()


def intake(counts: Counts | None = None) -> tuple[Intake, FakeSource, Failures]:
    source, failures = FakeSource(), Failures()
    made = new_intake(
        partitions=Partitions({INBOX.topic: source}, limits=LIMITS),
        counts=counts,
        failures=failures,
    )
    made.deliver(Assigned((INBOX,)))
    return made, source, failures


def records(count: int, size: int, first: int = 0) -> list[Record]:
    value = bytes(size)
    return [
        Record(partition=INBOX, offset=offset, timestamp_ms=0, key=None, value=value, headers=[])
        for offset in range(first, first + count)
    ]


def test_large_lines_are_read_no_further_when_they_fill_the_memory() -> None:
    """Large lines pause the inbox when they fill the memory, and it resumes later.

    A stalled database would otherwise let thousands of lines of 3 MiB pile up.
    """
    inbox, source, _ = intake()
    most = LIMITS.inbox_bytes // MAX_TASK_BYTES
    inbox.deliver(records(most, MAX_TASK_BYTES))
    assert not source.paused

    inbox.deliver(records(1, MAX_TASK_BYTES, first=most))
    assert source.paused == {INBOX}

    while inbox._page():
        pass
    inbox._pause()
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
    inbox, source, _ = intake()

    inbox.deliver(
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
        ]
    )
    assert source.paused == {INBOX}

    assert len(inbox._page()) == 2
    while inbox._page():
        pass
    inbox._pause()
    assert not source.paused


def test_a_page_fits_one_transaction() -> None:
    """A page is limited by its lines and by their bytes."""
    inbox, _, _ = intake()
    inbox.deliver(records(20, MAX_TASK_BYTES))
    inbox.deliver(records(1000, 10, first=20))

    sizes = []
    while page := inbox._page():
        sizes.append((len(page), sum(len(record.value or b"") for record in page)))

    assert sum(count for count, _ in sizes) == 1020
    assert all(
        count <= LIMITS.inbox_page and size < LIMITS.inbox_page_bytes + MAX_TASK_BYTES
        for count, size in sizes
    )
    assert max(count for count, _ in sizes) == LIMITS.inbox_page


def test_an_inbox_whose_reader_ended_ends_the_agent() -> None:
    """An inbox whose reader has ended for good ends the agent; a passing problem does not."""
    inbox, _, failures = intake()

    inbox.deliver(SourceFailed("a broker is away"))
    inbox.deliver(SourceFailed("the consumer ended", fatal=True))

    assert failures.reason == "the consumer ended"


def test_a_recreated_inbox_is_reported_until_its_id_is_stored() -> None:
    """A recreated inbox is reported until its id is known.

    It used to stand still silently; its producers, and whoever waits for `--until-done`, must learn
    why.
    """
    counts = Counts()
    inbox, _, _ = intake(counts)

    inbox.deliver(Revoked((INBOX,)))
    inbox.deliver(Recreated(INBOX.topic, known=False))
    assert counts.unknown_topics == {"group.inbox"}

    inbox.deliver(Recreated(INBOX.topic, known=True))
    assert counts.unknown_topics == set()
