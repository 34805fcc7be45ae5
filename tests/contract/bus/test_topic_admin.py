"""The port TopicAdmin: topics, and the positions of groups on them."""

import pytest

from docllm.schemas.errors import UnsafeStateError
from tests.contract.support.bus import opened, texts
from tests.contract.support.parts import Parts


async def test_topic_is_described_as_it_was_made(parts: Parts) -> None:
    """A new topic has an id, its partitions, no retention limit and append time.

    It has room for records of 4 MiB.
    """
    async with opened(parts) as bus:
        descriptions = await bus.admin.describe([bus.topic, "no-such-topic"])

        assert list(descriptions) == [bus.topic]
        state = descriptions[bus.topic]
        assert state.topic_id
        assert state.partitions == 4
        assert state.settings["retention.ms"] == "-1"
        assert state.settings["retention.bytes"] == "-1"
        assert state.settings["message.timestamp.type"] == "LogAppendTime"
        assert state.settings["max.message.bytes"] == str(4 << 20)


async def test_dead_letters_are_made_for_every_client(parts: Parts) -> None:
    """A topic of dead letters has a codec that every client reads; no other topic names one."""
    async with opened(parts) as bus:
        letters = f"{bus.topic}.dlq"
        await bus.admin.create(letters, 4, None)
        await bus.admin.configure(letters)

        descriptions = await bus.admin.describe([bus.topic, letters])

        assert descriptions[letters].settings["compression.type"] == "gzip"
        assert descriptions[bus.topic].settings.get("compression.type", "producer") == "producer"


async def test_a_topic_exists_when_create_returns(parts: Parts) -> None:
    """A caller can at once read a new topic's id, get its backlog and write to it."""
    async with opened(parts) as bus:
        for number in range(5):
            name = f"{bus.topic}-{number}"
            await bus.admin.create(name, 4, None)

            descriptions = await bus.admin.describe([name])
            backlog = await bus.admin.backlog(bus.group, [name])

            assert list(descriptions) == [name]
            assert backlog.lag == 0


async def test_topic_is_not_made_twice(parts: Parts) -> None:
    """Making a topic that exists is an error, and leaves it as it was."""
    async with opened(parts) as bus:
        before = await bus.admin.describe([bus.topic])

        with pytest.raises(UnsafeStateError, match=bus.topic):
            await bus.admin.create(bus.topic, 8, None)

        assert await bus.admin.describe([bus.topic]) == before


async def test_topic_made_again_has_another_id(parts: Parts) -> None:
    """A recreated topic has another id, no records and no committed offsets."""
    async with opened(parts) as bus:
        await bus.send(texts(5))
        await parts.set_offsets(bus.group, {(bus.topic, 0): 1})
        old = (await bus.admin.describe([bus.topic]))[bus.topic].topic_id

        await parts.delete_topic(bus.topic)
        await bus.admin.create(bus.topic, 4, None)
        backlog = await bus.admin.backlog(bus.group, [bus.topic])

        assert (await bus.admin.describe([bus.topic]))[bus.topic].topic_id != old
        assert backlog.lag == 0


async def test_partitions_rise_and_never_fall(parts: Parts) -> None:
    """Partitions can be added, which keeps the topic's id, and cannot be removed."""
    async with opened(parts) as bus:
        before = (await bus.admin.describe([bus.topic]))[bus.topic]

        await bus.admin.grow(bus.topic, 6)
        after = (await bus.admin.describe([bus.topic]))[bus.topic]
        with pytest.raises(UnsafeStateError):
            await bus.admin.grow(bus.topic, 5)

        assert after.partitions == 6
        assert after.topic_id == before.topic_id


async def test_added_partition_is_read_by_a_running_member(parts: Parts) -> None:
    """A running member gets added partitions."""
    async with opened(parts) as bus:
        member = await bus.join()
        await member.holds(4)

        await bus.admin.grow(bus.topic, 6)

        await member.holds(6)


async def test_configure_keeps_a_topic_as_it_was_made(parts: Parts) -> None:
    """Setting the settings of a topic that has them changes nothing."""
    async with opened(parts) as bus:
        before = await bus.admin.describe([bus.topic])

        await bus.admin.configure(bus.topic)

        assert await bus.admin.describe([bus.topic]) == before


async def test_backlog_counts_from_the_committed_offsets(parts: Parts) -> None:
    """Lag and oldest timestamp belong to records at and above the committed offsets."""
    async with opened(parts) as bus:
        for number in (0, 1):
            await bus.send(texts(5), number=number)
        fresh = await bus.admin.backlog(bus.group, [bus.topic])
        await parts.set_offsets(bus.group, {(bus.topic, 0): 5, (bus.topic, 1): 4})
        backlog = await bus.admin.backlog(bus.group, [bus.topic])
        member = await bus.join()
        await member.has_read(1)
        member.mark_all()
        await member.source.commit()
        none = await bus.admin.backlog(bus.group, [bus.topic])

        assert (fresh.lag, fresh.committed) == (10, {})
        assert (backlog.lag, backlog.committed) == (1, {(bus.topic, 0): 5, (bus.topic, 1): 4})
        assert fresh.oldest_ms is not None
        assert backlog.oldest_ms == member.records[0].timestamp_ms
        assert fresh.oldest_ms <= backlog.oldest_ms
        assert (none.lag, none.oldest_ms) == (0, None)


async def test_trim_deletes_records_below_an_offset(parts: Parts) -> None:
    """Trimmed records are gone, and the others stay.

    A group without offsets counts from the low watermark.
    """
    async with opened(parts) as bus:
        await bus.send(texts(10), number=2)

        await bus.admin.trim({(bus.topic, 2): 7})
        backlog = await bus.admin.backlog(bus.group, [bus.topic])
        member = await bus.join()
        await member.has_read(3)

        assert backlog.lag == 3
        assert member.values() == texts(3, start=7)


async def test_negative_offset_is_never_trimmed_to(parts: Parts) -> None:
    """Kafka reads -1 as "everything", so a negative offset is refused before any delete."""
    async with opened(parts) as bus:
        await bus.send(texts(4), number=0)

        with pytest.raises(ValueError, match="negative"):
            await bus.admin.trim({(bus.topic, 0): -1})

        assert (await bus.admin.backlog(bus.group, [bus.topic])).lag == 4


async def test_cluster_has_one_id(parts: Parts) -> None:
    """The id of the cluster is the same for all callers."""
    async with opened(parts) as bus:
        other = await parts.admin()

        ids = {await bus.admin.cluster_id(), await other.cluster_id()}
        await other.close()

        assert len(ids) == 1
        assert all(ids)
