"""What is read no further, and since when it is read again."""

from collections import Counter
from dataclasses import dataclass, field
from typing import cast

import pytest

from agent.aside import Aside
from agent.backpressure import ASIDE_MOST, BODIES_BYTES, READY_LEAST, WAITING_MOST, Backpressure
from agent.entries import Entries
from agent.partitions import Partitions

MAIN, TIER = "g.tasks", "g.retry.30s"


@dataclass
class FakeEntries:
    waiting: int = 0
    parked: int = 0
    bodies_bytes: int = 0


@dataclass
class FakePartitions:
    topics: tuple[str, ...] = (MAIN, TIER)
    left: Counter[str] = field(default_factory=Counter)
    paused: set[str] = field(default_factory=set)

    def unfinished(self, topic: str) -> int:
        return self.left[topic]

    def pause(self, topics: set[str]) -> None:
        self.paused = topics


class FakeAside(list[object]):
    """Suspects, and how much they weigh."""

    bytes = 0


class Bench:
    """Backpressure over what a test says that waits."""

    def __init__(self, slots: int = 8) -> None:
        self.entries, self.partitions, self.aside = FakeEntries(), FakePartitions(), FakeAside()
        self.pressure = Backpressure(
            entries=cast("Entries", self.entries),
            partitions=cast("Partitions", self.partitions),
            aside=cast("Aside", self.aside),
            slots=slots,
            main_topic=MAIN,
        )

    def paused(self, waiting: int = 0) -> set[str]:
        """Return what is paused when so many wait for a slot."""
        self.entries.waiting = waiting
        self.pressure.look()
        return self.partitions.paused


def test_new_tasks_are_read_no_further_while_enough_wait_for_a_slot() -> None:
    """They are read again when half of them are gone, not at every one; a tier is read all the time, since its tasks are due."""
    bench = Bench()

    assert bench.paused(READY_LEAST - 1) == set()
    assert bench.paused(READY_LEAST) == {MAIN}
    assert bench.paused(READY_LEAST // 2) == {MAIN}
    assert bench.paused(READY_LEAST // 2 - 1) == set()


def test_many_slots_have_more_waiting_for_them() -> None:
    """Each slot has two tasks in reserve."""
    assert Bench(slots=4000).paused(7_999) == set()
    assert Bench(slots=4000).paused(8_000) == {MAIN}


@pytest.mark.parametrize("heavy", ["bodies", "aside", "few but large ones"])
def test_nothing_is_read_while_what_waits_is_heavy(heavy: str) -> None:
    """Bodies in memory, and suspects that the ledger does not take just now, are bounded whatever the topic."""
    bench = Bench()
    bench.entries.bodies_bytes = BODIES_BYTES if heavy == "bodies" else 0
    bench.aside += [None] * (ASIDE_MOST + 1 if heavy == "aside" else 0)
    bench.aside.bytes = BODIES_BYTES if heavy == "few but large ones" else 0

    assert bench.paused() == {MAIN, TIER}
    assert bench.pressure.full


def test_what_waits_without_a_body_is_bounded_by_topic() -> None:
    """Tasks of closed routes in the main topic, and held ones in a tier."""
    bench = Bench()
    bench.entries.parked = WAITING_MOST
    assert bench.paused() == {MAIN}

    bench.entries.parked = 0
    bench.partitions.left[TIER] = WAITING_MOST

    assert bench.paused() == {TIER}
