"""Former bugs of sources, repeated under the new group protocol (KIP-848)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import KafkaError

from docllm.agent.consumer.kafka.source import KafkaSource
from docllm.agent.ports import SourceFailed
from tests.contract.bus import test_source, test_source_offsets, test_topic_admin
from tests.contract.support import kafka_parts
from tests.contract.support.bus import opened, texts
from tests.contract.support.parts import Parts
from tests.servers import Kafka

FACTS = [
    test_source.test_killed_members_records_come_again_from_the_last_commit,
    test_source.test_mark_is_committed_on_revoke,
    test_source.test_mark_of_an_old_epoch_is_void,
    test_source.test_pause_survives_a_rebalance,
    test_source_offsets.test_offset_beyond_the_end_starts_at_the_low_watermark,
    test_source_offsets.test_records_deleted_under_a_running_member_are_passed_over_aloud,
    test_source_offsets.test_group_without_offsets_starts_at_the_low_watermark,
    test_source_offsets.test_a_recreated_topic_is_read_from_its_start_once_its_id_is_known,
    test_source.test_no_record_comes_outside_its_assignment,
    test_topic_admin.test_added_partition_is_read_by_a_running_member,
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__.removeprefix("test_"))
def test_new_protocol_changes_no_promise(
    fact: Callable[[Parts], Awaitable[None]], kafka_server: Kafka
) -> None:
    """The tests for the classic protocol also hold under the new one."""
    parts = kafka_parts.parts(kafka_server.bootstrap, "consumer")

    async def run() -> None:
        await fact(parts)

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_source_goes_on_after_a_fatal_error(protocol: str, kafka_server: Kafka) -> None:
    """A fatal error of the client costs an assignment, not the source.

    A new handle reads on from the last commit.
    """

    async def run() -> None:
        async with opened(kafka_parts.parts(kafka_server.bootstrap, protocol)) as bus:
            await bus.send(texts(10))
            member = await bus.join()
            await member.has_read(10)
            member.mark_all()
            await member.source.commit()
            assert isinstance(member.source, KafkaSource)
            assert member.source._member is not None
            reader, _ = member.source._member

            reader.tell(lambda _: reader._on_error(KafkaError(KafkaError._FATAL, "worn out")))
            await member.holds(0)
            await bus.send(texts(10, start=10))
            await member.has_read(20)

            assert sorted(member.values()) == sorted(texts(20))
            assert any(
                isinstance(event, SourceFailed) and "worn out" in event.reason
                for event in member.events
            )

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_that_gets_no_partition_is_at_rest(protocol: str, kafka_server: Kafka) -> None:
    """A member without partitions is at rest; otherwise it would wait for ever to leave."""

    async def run() -> None:
        async with opened(kafka_parts.parts(kafka_server.bootstrap, protocol)) as bus:
            for _ in range(4):
                await bus.join()
            await bus.members[0].until(lambda: all(len(member.held) == 1 for member in bus.members))

            idle = await bus.join()
            async with asyncio.timeout(60):
                # Silence has no event.
                while not (rest := await idle.source.at_rest()).joined:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

            assert rest.lag == 0
            assert idle.held == {}

    asyncio.run(run())
