"""The partitions of an agent: watermarks that only their own assignment moves, and pauses."""

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import Partition
from docllm.schemas.task.record.envelope import Publication
from tests.support.source import FakeSource

TOPIC = "group.tasks"
LIMITS = InFlightLimits(span=100, resume_span=90)


def partition(number: int = 0, epoch: int = 1, topic: str = TOPIC) -> Partition:
    return Partition(topic, "id", number, epoch)


def new_delivery(where: Partition, offset: int) -> Delivery:
    return Delivery(
        partition=where,
        offset=offset,
        timestamp_ms=0,
        publication=Publication(
            ledger="ledger", group="group", batch="batch", task_id=offset, fence=0
        ),
        value=None,
        digest=None,
        route="route",
    )


def assigned(*partitions: Partition) -> tuple[Partitions, FakeSource]:
    source = FakeSource()
    tracked = Partitions({TOPIC: source}, limits=LIMITS)
    tracked.assign(partitions)
    return tracked, source


def test_a_source_of_several_topics_is_told_all_that_it_must_not_read() -> None:
    """The set is replaced each time, so the partitions of one topic must not undo the other's."""
    source, bulk = FakeSource(), Partition("bulk", "id", 0, 1)
    tracked = Partitions({TOPIC: source, "bulk": source}, limits=LIMITS)
    tracked.assign([partition(), bulk])
    for where in (partition(), bulk):
        tracked.begin(where, 0)

    tracked.pause({"bulk"})
    tracked.pause({TOPIC, "bulk"})
    tracked.pause({TOPIC, "bulk"})
    tracked.pause({TOPIC})

    assert source.pauses == [{bulk}, {partition(), bulk}, {partition()}]


def test_a_watermark_is_marked_when_it_moves() -> None:
    """A watermark is marked once for each position, and not before something was read."""
    tracked, source = assigned(partition())
    tracked.flush()
    for offset in (5, 6):
        tracked.begin(partition(), offset)
    tracked.flush()
    tracked.flush()
    tracked.finish_record(partition(), 6)
    tracked.flush()
    tracked.finish_record(partition(), 5)
    tracked.flush()

    assert source.marks == [(partition(), 5), (partition(), 7)]
    assert tracked.marked() == {(TOPIC, 0): 7}


def test_an_old_assignment_moves_nothing() -> None:
    """After a revoke, records and settles of the old epoch do not touch the new one."""
    old, new = partition(epoch=1), partition(epoch=2)
    tracked, source = assigned(old)
    tracked.begin(old, 5)
    tracked.keep(new_delivery(old, 5))
    dropped = tracked.revoke([old])
    tracked.assign([new])
    tracked.begin(new, 5)

    tracked.finish_record(old, 5)
    tracked.flush()

    assert [delivery.offset for delivery in dropped] == [5]
    assert not tracked.begin(old, 6)
    assert (old in tracked, new in tracked, len(tracked)) == (False, True, 1)
    assert source.marks == [(new, 5)]


def test_a_partition_comes_back_with_everything_to_be_asked_about() -> None:
    """The first records after an assignment may have been settled before.

    That holds until the ledger says that one was not.
    """
    tracked, _ = assigned(partition())
    assert tracked.redelivered(partition())

    tracked.note_not_redelivered(partition())
    assert not tracked.redelivered(partition())
    tracked.revoke([partition()])
    tracked.assign([partition(epoch=2)])

    assert tracked.redelivered(partition(epoch=2))
    assert not tracked.redelivered(partition())


def test_the_entries_of_a_revoked_partition_are_given_back() -> None:
    """A revoke returns only unfinished deliveries."""
    tracked, _ = assigned(partition())
    for offset in range(3):
        tracked.begin(partition(), offset)
        tracked.keep(new_delivery(partition(), offset))
    tracked.finish_record(partition(), 1)

    assert [delivery.offset for delivery in tracked.revoke([partition()])] == [0, 2]
    assert tracked.revoke([partition()]) == []


def test_a_wide_span_pauses_its_partition_until_it_is_narrower() -> None:
    """A wide span pauses its partition until it is narrower than the low mark.

    Between the two marks nothing changes, and an unchanged set is not sent again.
    """
    tracked, source = assigned(partition(0), partition(1))
    tracked.pause(())
    tracked.begin(partition(0), 0)
    tracked.begin(partition(0), LIMITS.span - 1)
    tracked.begin(partition(0), LIMITS.span)
    tracked.pause(())
    tracked.pause(())
    tracked.finish_record(partition(0), 0)
    tracked.pause(())

    assert source.pauses == [frozenset(), frozenset({partition(0)}), frozenset()]


def test_a_span_that_shrinks_a_little_stays_paused() -> None:
    """Reading resumes at the low mark, not at the high one."""
    tracked, source = assigned(partition())
    tracked.begin(partition(), 0)
    tracked.begin(partition(), LIMITS.span - LIMITS.resume_span)
    tracked.begin(partition(), LIMITS.span)
    tracked.pause(())
    tracked.finish_record(partition(), 0)
    tracked.pause(())
    assert source.pauses == [frozenset({partition()})]

    tracked.finish_record(partition(), LIMITS.span - LIMITS.resume_span)
    tracked.pause(())

    assert source.pauses[-1] == frozenset()


def test_everything_is_paused_while_nothing_fits() -> None:
    """A full pause is sent again after an assignment, since a new partition is not paused."""
    tracked, source = assigned(partition(0))
    tracked.begin(partition(0), 0)
    tracked.pause([TOPIC])
    tracked.assign([partition(1)])
    tracked.begin(partition(1), 0)
    tracked.pause([TOPIC])

    assert source.pauses == [frozenset({partition(0)}), frozenset({partition(0), partition(1)})]


def test_a_partition_that_was_not_read_is_not_paused() -> None:
    """A partition that was not read yet is never paused.

    A dead agent's records stand at its beginning, and must not wait for this agent's own.
    """
    tracked, source = assigned(partition(0))
    tracked.begin(partition(0), 0)
    tracked.assign([partition(1)])

    tracked.pause([TOPIC])

    assert source.pauses == [frozenset({partition(0)})]


def test_one_slow_task_behind_a_wide_span_is_named() -> None:
    """The delivery at the watermark is returned once nearly all behind it are finished.

    While many are open, it is not.
    """
    tracked, _ = assigned(partition())
    for offset in range(LIMITS.span):
        tracked.begin(partition(), offset)
    slow = new_delivery(partition(), 0)
    tracked.keep(slow)
    assert tracked.blocking(0.98) == []

    for offset in range(1, LIMITS.span):
        tracked.finish_record(partition(), offset)

    assert tracked.blocking(0.98) == [slow]
    tracked.finish_record(partition(), 0)
    assert tracked.blocking(0.98) == []
