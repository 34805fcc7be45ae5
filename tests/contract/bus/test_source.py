"""The port Source: what every consumer handle promises, on any bus."""

import asyncio
from collections import defaultdict

from docllm.agent.ports import Assigned, Event, Partition, Revoked
from tests.contract.support.bus import opened, texts
from tests.contract.support.parts import Parts


async def test_lone_member_reads_everything_once_and_in_order(parts: Parts) -> None:
    """A lone member gets every record once, each partition's in the order of its offsets."""
    async with opened(parts) as bus:
        await bus.send(texts(300))

        member = await bus.join()
        await member.has_read(300)
        await bus.send(texts(50, start=300))
        await member.has_read(350)

        assert sorted(member.values()) == sorted(texts(350))
        for number in range(4):
            assert member.offsets(number) == list(range(len(member.offsets(number))))


async def test_records_arrive_as_they_were_sent(parts: Parts) -> None:
    """Null, empty and binary keys, values and headers arrive unchanged.

    They have the bus's timestamp.
    """
    everything = bytes(range(256))
    sent = [(None, b"v"), (b"k", None), (b"", b""), (everything, everything)]
    headers = [("empty", b""), ("binary", everything), ("twice", b"1"), ("twice", b"2")]
    async with opened(parts) as bus:
        await bus.send_records([bus.record(key, value, headers) for key, value in sent])

        member = await bus.join()
        await member.has_read(4)

        assert {(record.key, record.value) for record in member.records} == set(sent)
        assert all(list(record.headers) == headers for record in member.records)
        assert all(record.timestamp_ms > 1_600_000_000_000 for record in member.records)


async def test_killed_members_records_come_again_from_the_last_commit(parts: Parts) -> None:
    """After a kill the next member reads on from the last commit, within the session."""
    async with opened(parts) as bus:
        await bus.send(texts(8), number=0)
        first = await bus.join()
        await first.has_read(8)
        first.source.mark(first.held[bus.topic, 0], 3)
        await first.source.commit()

        second = await bus.join()
        await second.holds(2)
        await bus.kill(first)
        await second.holds(4, within_s=parts.session_s + 30)
        await second.until(lambda: len(second.offsets(0)) == 5)

        assert second.offsets(0) == [3, 4, 5, 6, 7]


async def test_two_members_share_and_read_nothing_twice(parts: Parts) -> None:
    """Two members share the partitions evenly, and no record is read by both."""
    async with opened(parts) as bus:
        await bus.send(texts(100))
        first = await bus.join()
        await first.has_read(100)
        first.mark_all()

        second = await bus.join()
        await second.holds(2)
        await first.holds(2)
        await bus.send(texts(100, start=100))
        await first.until(lambda: len(first.records) + len(second.records) >= 200)

        assert sorted(first.values() + second.values()) == sorted(texts(200))
        assert not first.held.keys() & second.held.keys()


async def test_mark_is_committed_without_a_request(parts: Parts) -> None:
    """A mark is committed by itself, in about a second on a quiet machine."""
    async with opened(parts) as bus:
        await bus.send(texts(5), number=0)
        member = await bus.join()
        await member.has_read(5)

        member.source.mark(member.held[bus.topic, 0], 4)

        async with asyncio.timeout(60):
            while (await bus.committed()).get(0) != 4:  # noqa: ASYNC110 - the bus reports no commit
                await asyncio.sleep(0.05)


async def test_mark_is_committed_on_revoke(parts: Parts) -> None:
    """A mark is committed on revoke, before the next member reads the partition."""
    async with opened(parts) as bus:
        for number in range(4):
            await bus.send(texts(5), number=number)
        first = await bus.join()
        await first.has_read(20)
        first.mark_all()

        second = await bus.join()
        await second.holds(2)

        committed = await bus.committed()
        assert [committed[number] for _, number in second.held] == [5, 5]
        assert all(not event.lost for event in first.events if isinstance(event, Revoked))
        assert second.records == []


async def test_leave_commits_and_may_be_called_twice(parts: Parts) -> None:
    """Leaving commits the marked offsets and reports the revoked partitions.

    Leaving again does nothing.
    """
    async with opened(parts) as bus:
        await bus.send(texts(5), number=0)
        member = await bus.join()
        await member.has_read(5)

        member.source.mark(member.held[bus.topic, 0], 5)
        await member.source.leave()
        event_count = len(member.events)
        await member.source.leave()

        assert await bus.committed() == {0: 5}
        assert member.held == {}
        assert len(member.events) == event_count


async def test_marks_never_go_back(parts: Parts) -> None:
    """A lower mark after a higher one changes nothing."""
    async with opened(parts) as bus:
        await bus.send(texts(5), number=0)
        member = await bus.join()
        await member.has_read(5)
        partition = member.held[bus.topic, 0]

        member.source.mark(partition, 4)
        await member.source.commit()
        member.source.mark(partition, 2)
        await member.source.commit()

        assert await bus.committed() == {0: 4}


async def test_mark_of_an_old_epoch_is_void(parts: Parts) -> None:
    """A partition that was lost and came back is another assignment.

    Marks of the first assignment are void, those of the second count.
    """
    async with opened(parts) as bus:
        for number in range(4):
            await bus.send(texts(3), number=number)
        first = await bus.join()
        await first.has_read(12)
        old = dict(first.held)
        second = await bus.join()
        await second.holds(2)
        await first.holds(2)
        moved = sorted(second.held)
        await bus.leave(second)
        await first.holds(4)

        for place in moved:
            first.source.mark(old[place], 3)
        await first.source.commit()
        void = await bus.committed()
        for place in moved:
            first.source.mark(first.held[place], 2)
        await first.source.commit()

        assert [void.get(number, 0) for _, number in moved] == [0, 0]
        assert await bus.committed() == {number: 2 for _, number in moved}
        assert all(first.held[place].epoch > old[place].epoch for place in moved)


async def test_paused_partition_delivers_nothing_until_it_is_resumed(parts: Parts) -> None:
    """A paused partition is silent while the others run.

    After its resumption it goes on where it stopped and skips nothing.
    """
    async with opened(parts) as bus:
        for number in (0, 1):
            await bus.send(texts(5), number=number)
        member = await bus.join()
        await member.has_read(10)

        member.source.pause([member.held[bus.topic, 0]])
        await member.obeyed()
        for number in (0, 1):
            await bus.send(texts(5), number=number)
        await member.has_read(15)
        silent = member.offsets(0)
        member.source.pause([])
        await member.has_read(20)

        assert silent == [0, 1, 2, 3, 4]
        assert member.offsets(0) == list(range(10))


async def test_pause_survives_a_rebalance(parts: Parts) -> None:
    """Paused partitions stay paused when other partitions come and go."""
    async with opened(parts) as bus:
        first = await bus.join()
        await first.holds(4)
        first.source.pause(first.held.values())
        await first.obeyed()
        second = await bus.join()
        await second.holds(2)
        await first.holds(2)

        for number in range(4):
            await bus.send(texts(3), number=number)
        await second.has_read(6)
        kept = {number for _, number in first.held}
        silent = list(first.records)
        first.source.pause([])
        await first.has_read(6)

        assert silent == []
        assert {record.partition.number for record in first.records} == kept


async def test_no_record_comes_outside_its_assignment(parts: Parts) -> None:
    """Every record's partition was assigned before it and not yet revoked."""
    async with opened(parts) as bus:
        await bus.send(texts(200))
        first = await bus.join()
        await first.has_read(1)
        second = await bus.join()
        await second.holds(2)
        await bus.send(texts(50, start=200))
        await bus.leave(second)
        await first.holds(4)
        await bus.send(texts(10, start=250))
        await first.until(lambda: len(set(first.values() + second.values())) == 260)

        for member in (first, second):
            _check_assignments(member.events)


def _check_assignments(events: list[Event]) -> None:
    held: set[Partition] = set()
    last: dict[Partition, int] = defaultdict(lambda: -1)
    for event in events:
        if isinstance(event, list):
            for record in event:
                assert record.partition in held
                assert record.offset > last[record.partition]
                last[record.partition] = record.offset
        elif isinstance(event, Assigned):
            held |= set(event.partitions)
        elif isinstance(event, Revoked):
            held -= set(event.partitions)
