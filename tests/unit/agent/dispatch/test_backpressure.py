"""Which topics are paused, and when they are read again."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from docllm.agent.dispatch.backpressure import (
    Backpressure,
)
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.schemas.task.record.lanes import Lane
from tests.support.doubles import stand_in

MAIN, BULK, TIER = "g.tasks", "g.tasks.bulk", "g.retry.30s"
LIMITS = InFlightLimits(ready_normal=1000)


@dataclass
class FakeTable:
    waiting: int = 0
    waiting_bulk: int = 0
    shelved: int = 0
    bodies_bytes: int = 0
    bulk_bytes: int = 0

    def waiting_in(self, lane: Lane) -> int:
        return self.waiting_bulk if lane is Lane.BULK else self.waiting

    def bytes_of(self, lane: Lane) -> int:
        return self.bulk_bytes if lane is Lane.BULK else self.bodies_bytes - self.bulk_bytes


@dataclass
class FakePartitions:
    topics: tuple[str, ...] = (MAIN, BULK, TIER)
    left: Counter[str] = field(default_factory=Counter)
    paused: set[str] = field(default_factory=set)

    def unfinished(self, topic: str) -> int:
        return self.left[topic]

    def pause(self, topics: set[str]) -> None:
        self.paused = topics


class FakeQuarantine(list[object]):
    """Rejected records, with a given size."""

    bytes = 0


class BackpressureHarness:
    """Backpressure over queues whose lengths a test sets."""

    def __init__(self, slots: int = 8, limits: InFlightLimits = LIMITS) -> None:
        self.table, self.partitions, self.queue = FakeTable(), FakePartitions(), FakeQuarantine()
        self.pressure = Backpressure(
            table=stand_in(InFlightTable, self.table),
            partitions=stand_in(Partitions, self.partitions),
            quarantine=stand_in(QuarantineQueue, self.queue),
            slots=slots,
            lanes={MAIN: Lane.NORMAL, BULK: Lane.BULK},
            limits=limits,
        )

    def paused(self, waiting: int = 0) -> set[str]:
        """Return the paused topics when so many deliveries wait for a slot."""
        self.table.waiting = waiting
        self.pressure.update()
        return self.partitions.paused


def test_new_tasks_are_read_no_further_while_enough_wait_for_a_slot() -> None:
    """The main topic is paused while enough deliveries wait, until half of them are gone.

    A tier is always read, because its tasks are due.
    """
    harness = BackpressureHarness()

    assert harness.paused(LIMITS.ready - 1) == set()
    assert harness.paused(LIMITS.ready) == {MAIN}
    assert harness.paused(LIMITS.ready // 2) == {MAIN}
    assert harness.paused(LIMITS.ready // 2 - 1) == set()


def test_many_slots_have_more_waiting_for_them() -> None:
    """Each slot has two tasks in reserve."""
    assert BackpressureHarness(slots=4000).paused(7_999) == set()
    assert BackpressureHarness(slots=4000).paused(8_000) == {MAIN}


@pytest.mark.parametrize("heavy", ["bodies", "queue", "few but large ones"])
def test_nothing_is_read_while_waiting_records_use_much_memory(heavy: str) -> None:
    """All topics are paused while bodies and rejected records take too much memory."""
    harness = BackpressureHarness()
    harness.table.bodies_bytes = LIMITS.bodies_bytes if heavy == "bodies" else 0
    harness.queue += [None] * (LIMITS.rejected + 1 if heavy == "queue" else 0)
    harness.queue.bytes = LIMITS.bodies_bytes if heavy == "few but large ones" else 0

    assert harness.paused() == {MAIN, BULK, TIER}
    assert harness.pressure.full


def test_deliveries_without_bodies_are_limited_by_topic() -> None:
    """Deliveries without bodies are limited for each topic.

    These are tasks of closed routes in the main topic, and delayed ones in a tier.
    """
    harness = BackpressureHarness()
    harness.table.shelved = LIMITS.shelved
    assert harness.paused() == {MAIN, BULK}

    harness.table.shelved = 0
    harness.partitions.left[TIER] = LIMITS.shelved

    assert harness.paused() == {TIER}


def test_a_full_lane_keeps_no_other_from_being_read() -> None:
    """While thousands wait in the bulk lane, tasks of the others are read at once."""
    harness = BackpressureHarness()
    harness.table.waiting_bulk = LIMITS.ready

    assert harness.paused(LIMITS.ready - 1) == {BULK}
    assert harness.pressure.full


def test_the_normal_lane_is_read_further() -> None:
    """A tenant's tasks are not hidden behind those that another may have before the overflow."""
    harness = BackpressureHarness(limits=InFlightLimits())
    harness.table.waiting_bulk = InFlightLimits().ready

    assert harness.paused(10_000) == {BULK}
    assert harness.paused(InFlightLimits().ready_normal) == {MAIN, BULK}
    assert harness.paused(InFlightLimits().ready_normal - InFlightLimits().ready // 2) == {
        MAIN,
        BULK,
    }
    assert harness.paused(InFlightLimits().ready_normal - InFlightLimits().ready // 2 - 1) == {BULK}


def test_large_bodies_of_a_lane_leave_memory_for_the_others() -> None:
    """When memory is nearly full, only the lane that has most of it is paused."""
    harness = BackpressureHarness()
    harness.table.bodies_bytes = LIMITS.bodies_bytes * 15 // 16
    harness.table.bulk_bytes = harness.table.bodies_bytes

    assert harness.paused() == {BULK}
