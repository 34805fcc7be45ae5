"""The port Source: where reading begins when offset, records or topic are gone."""

import asyncio

from tests.contract.support.bus import PATIENCE_S, Member, opened, texts
from tests.contract.support.parts import Parts


async def test_offset_beyond_the_end_starts_at_the_low_watermark(parts: Parts) -> None:
    """A committed offset above the log's end is out of range.

    Reading starts at the low watermark and is reported.
    """
    async with opened(parts) as bus:
        await bus.send(texts(5), number=0)
        await parts.set_offsets(bus.group, {(bus.topic, 0): 1000})

        member = await bus.join()
        await member.has_read(5)
        await member.until(lambda: member.rewinds() > 0)
        member.source.mark(member.held[bus.topic, 0], 5)
        await member.source.commit()

        assert member.offsets(0) == [0, 1, 2, 3, 4]
        assert await bus.committed() == {0: 5}


async def test_committed_offset_that_was_deleted_starts_at_the_low_watermark(parts: Parts) -> None:
    """A committed offset below the low watermark is out of range.

    Reading starts at the low watermark and is reported.
    """
    async with opened(parts) as bus:
        await bus.send(texts(8), number=0)
        await parts.set_offsets(bus.group, {(bus.topic, 0): 2})
        await bus.admin.trim({(bus.topic, 0): 5})

        member = await bus.join()
        await member.has_read(3)
        await member.until(lambda: member.rewinds() > 0)

        assert member.offsets(0) == [5, 6, 7]


async def test_records_deleted_under_a_running_member_are_passed_over_aloud(parts: Parts) -> None:
    """Records deleted before a running member has read them are reported.

    The member goes on at the low watermark.
    """
    async with opened(parts) as bus:
        await bus.send(texts(2), number=0)
        member = await bus.join()
        await member.has_read(2)
        member.source.pause([member.held[bus.topic, 0]])
        await member.obeyed()
        await bus.send(texts(8), number=0)

        await bus.admin.trim({(bus.topic, 0): 6})
        member.source.pause([])
        await member.has_read(6)

        assert member.offsets(0) == [0, 1, 6, 7, 8, 9]
        assert member.rewinds() > 0


async def test_group_without_offsets_starts_at_the_low_watermark(parts: Parts) -> None:
    """A group whose offsets were deleted starts again.

    It reports this where records are missing, and only there.
    """
    async with opened(parts) as bus:
        for number in (0, 1):
            await bus.send(texts(5), number=number)
        first = await bus.join()
        await first.has_read(10)
        first.mark_all()
        await bus.leave(first)
        await bus.admin.trim({(bus.topic, 1): 2})

        await parts.delete_offsets(bus.group)
        second = await bus.join()
        await second.has_read(8)
        await second.until(lambda: second.rewinds() > 0)

        assert second.offsets(0) == [0, 1, 2, 3, 4]
        assert second.offsets(1) == [2, 3, 4]
        assert second.rewinds() == 1
        assert first.rewinds() == 0


async def test_a_recreated_topic_is_read_from_its_start_once_its_id_is_known(parts: Parts) -> None:
    """A topic recreated under a running member is silent until its new id is known.

    Then it is read from its start.
    """
    async with opened(parts) as bus:
        await bus.send(texts(5), number=0)
        member = await bus.join()
        await member.has_read(5)
        old = member.held[bus.topic, 0]
        member.mark_all()
        await member.source.commit()

        await parts.delete_topic(bus.topic)
        await bus.make_again()
        await member.until(lambda: member.recreated() == [False])
        unknown, before = dict(member.held), len(member.records)
        await bus.send(texts(3, start=100), number=0)
        await member.obeyed()
        silent = len(member.records) == before
        member.source.mark(old, 5)
        await member.source.commit()
        void = await bus.committed()
        await bus.know()
        await member.has_read(before + 3)

        assert unknown == {}
        assert silent
        assert void == {}
        assert member.recreated() == [False, True]
        assert member.values()[before:] == texts(3, start=100)
        assert {record.partition for record in member.records[before:]} == {
            member.held[bus.topic, 0]
        }
        assert member.held[bus.topic, 0].topic_id != old.topic_id
        assert member.held[bus.topic, 0].epoch > old.epoch


async def test_topic_of_an_unknown_id_is_not_read(parts: Parts) -> None:
    """A topic whose id was never stored is reported and not read, until it is stored."""
    async with opened(parts) as bus:
        await bus.send(texts(3), number=0)
        parts.known[bus.topic] = "another"

        member = await bus.join()
        await member.until(lambda: member.recreated() == [False])
        unknown = list(member.records)
        await bus.know()
        await member.has_read(3)

        assert unknown == []
        assert member.recreated() == [False, True]


async def test_a_source_at_rest_counts_uncommitted_records(parts: Parts) -> None:
    """The distance from the end falls with commits, not with reading.

    It grows with new records.
    """
    async with opened(parts) as bus:
        await bus.send(texts(10))
        member = await bus.join()
        await member.has_read(10)

        before = await member.source.at_rest()
        member.mark_all()
        await member.source.commit()
        after = await member.source.at_rest()
        await bus.send(texts(3))
        grown = await member.source.at_rest()

        assert (before.joined, before.lag) == (True, 10)
        assert (after.joined, after.lag) == (True, 0)
        assert grown.lag == 3


async def test_a_source_knows_its_lag_without_waiting(parts: Parts) -> None:
    """The lag falls as watermarks are committed, and grows with new records."""
    async with opened(parts) as bus:
        await bus.send(texts(10))
        member = await bus.join()
        await member.has_read(10)
        await lags(member, 10)
        assert set(member.source.lag()) == {bus.topic}

        member.mark_all()
        await member.source.commit()
        await lags(member, 0)

        await bus.send(texts(3))
        await lags(member, 3)


async def lags(member: Member, count: int) -> None:
    """Return when the source's lag is this."""
    async with asyncio.timeout(PATIENCE_S):
        while sum(member.source.lag().values()) != count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.1)
