"""The port Publisher: the promises of writing to a bus."""

import os

from docllm.producer.bus.murmur2 import partition_of
from tests.contract.support.bus import opened, texts
from tests.contract.support.parts import Parts

TOO_LARGE_BYTES = 5 << 20


async def test_keyed_records_go_where_murmur2_sends_them(parts: Parts) -> None:
    """A key decides the partition, by Kafka's own hash, on every bus."""
    keys = [*texts(100), b"", b"\xff\xfe", "Schlüssel".encode(), b"k" * 191]
    async with opened(parts) as bus:
        await bus.send_records([bus.record(key, b"v") for key in keys])

        member = await bus.join()
        await member.has_read(len(keys))

        assert {record.key: record.partition.number for record in member.records} == {
            key: partition_of(key, 4) for key in keys
        }


async def test_records_without_a_key_are_spread(parts: Parts) -> None:
    """Records without a key do not all go to one partition.

    Kafka's client keeps a partition for 10 ms, and may then draw the same one again.
    """
    async with opened(parts) as bus:
        member = await bus.join()
        for sent in range(1, 31):
            await bus.send_records([bus.record(None, b"v")])
            await member.has_read(sent)

        assert len({record.partition.number for record in member.records}) > 1


async def test_too_large_record_is_refused_and_the_others_are_delivered(parts: Parts) -> None:
    """A record above the limit is refused for good; the others of the same call arrive."""
    async with opened(parts) as bus:
        records = [bus.record(value, value) for value in texts(3)]
        records.insert(1, bus.record(b"large", os.urandom(TOO_LARGE_BYTES)))

        refusals = await bus.publisher.publish(records)
        member = await bus.join()
        await member.has_read(3)

        assert [refusal is None for refusal in refusals] == [True, False, True, True]
        assert refusals[1] is not None
        assert refusals[1].permanent
        assert sorted(member.values()) == texts(3)


async def test_record_of_three_mebibytes_is_taken(parts: Parts) -> None:
    """The largest task that may be loaded fits into a record."""
    async with opened(parts) as bus:
        body = os.urandom(3 << 20)
        await bus.send_records([bus.record(b"k", body)])

        member = await bus.join()
        await member.has_read(1)

        assert member.records[0].value == body


async def test_nothing_waits_after_the_answers(parts: Parts) -> None:
    """After the answers the local queue is empty; publishing nothing returns no answers."""
    async with opened(parts) as bus:
        nothing = await bus.publisher.publish([])
        await bus.send(texts(100))

        assert nothing == []
        assert bus.publisher.waiting() == 0
