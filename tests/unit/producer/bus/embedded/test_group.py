"""Members of a group; each pass and the clock are moved by hand."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from docllm.producer.bus.embedded import log, topics
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.group import BEAT_EVERY_S, SESSION_S, Member
from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.schemas.task.record.envelope import Outgoing
from tests.support.clock import HandClock
from tests.support.embedded_bus import delete_topic

RNG = Random(1)  # noqa: S311 - every record here has a key, so nothing is random


class EmbeddedBusHarness:
    """A bus with one topic of four partitions with ten records each, and hand-moved members."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bus.sqlite"
        self.clock = HandClock()
        self.file = BusFile(self.path)
        self.files = [self.file]
        topics.create(self.file, "t", 4, TOPIC_SETTINGS)
        self.ids = frozenset({topics.states_of(self.file, ["t"])["t"].topic_id})
        log.append(self.file, [Outgoing("t", b"%d" % n, b"v", []) for n in range(400)], RNG)

    def member(self) -> Member:
        self.files.append(BusFile(self.path))
        return Member(file=self.files[-1], group_id="g", clock=self.clock)

    def make_pass(self, member: Member, marks: dict[int, int] | None = None) -> set[int]:
        result = member.make_pass(self.ids, marks or {}, member.dead())
        return {holding.partition_id for holding in result.holdings}

    def committed(self) -> dict[int, int]:
        return dict(self.file.all('SELECT partition_id, "offset" FROM committed'))

    def beat_for(self, seconds: float, *members: Member) -> None:
        for _ in range(int(seconds / BEAT_EVERY_S)):
            self.clock.at_s += BEAT_EVERY_S
            for member in members:
                self.make_pass(member)


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[EmbeddedBusHarness]:
    made = EmbeddedBusHarness(tmp_path)
    yield made
    for file in made.files:
        file.close()


def test_lone_member_takes_everything_in_its_first_pass(bus: EmbeddedBusHarness) -> None:
    """A lone member takes all partitions in its first pass."""
    assert bus.make_pass(bus.member()) == {1, 2, 3, 4}


def test_partition_moves_only_when_its_owner_has_released_it(bus: EmbeddedBusHarness) -> None:
    """A second member gets a partition only after the first one's pass, with its last commit."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)

    early = bus.make_pass(second)
    kept = bus.make_pass(first, dict.fromkeys(range(1, 5), 7))
    taken = bus.make_pass(second)

    assert early == set()
    assert len(kept) == len(taken) == 2
    assert kept | taken == {1, 2, 3, 4}
    assert bus.committed() == dict.fromkeys(range(1, 5), 7)


def test_commit_for_a_partition_of_another_is_refused(bus: EmbeddedBusHarness) -> None:
    """Only the owner of a partition commits it."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)
    bus.make_pass(second)
    kept = bus.make_pass(first)
    bus.make_pass(second)

    bus.make_pass(first, dict.fromkeys(range(1, 5), 9))

    assert set(bus.committed()) == kept


def test_killed_member_is_replaced_in_one_pass(bus: EmbeddedBusHarness) -> None:
    """A free lock proves death: the survivor takes over at once, however short the silence."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)
    bus.make_pass(second)
    bus.make_pass(first)
    bus.make_pass(second)

    first.close()

    assert second.dead() == {first.id}
    assert bus.make_pass(second) == {1, 2, 3, 4}


def test_frozen_member_is_evicted_after_the_session_and_can_commit_nothing(
    bus: EmbeddedBusHarness,
) -> None:
    """A member that holds its lock but is silent for a session loses its partitions.

    Its commits are refused.
    """
    frozen, living = bus.member(), bus.member()
    bus.make_pass(frozen)
    bus.beat_for(BEAT_EVERY_S, living, frozen)
    bus.beat_for(SESSION_S, living, frozen)

    bus.beat_for(SESSION_S, living)
    before = bus.make_pass(living)
    bus.beat_for(2 * BEAT_EVERY_S, living)
    after = bus.make_pass(living)
    back = frozen.make_pass(bus.ids, dict.fromkeys(range(1, 5), 9))

    assert len(before) == 2
    assert after == {1, 2, 3, 4}
    assert (back.evicted, back.owned_before, back.holdings) == (True, frozenset(), ())
    assert bus.committed() == {}


def test_evicted_member_comes_back_under_a_new_id(bus: EmbeddedBusHarness) -> None:
    """After an eviction, the next pass joins under a new id and shares again."""
    frozen, living = bus.member(), bus.member()
    old = frozen.id
    bus.make_pass(frozen)
    bus.beat_for(SESSION_S + BEAT_EVERY_S, living)
    bus.beat_for(2 * BEAT_EVERY_S, living)
    evicted = frozen.make_pass(bus.ids, {}).evicted

    bus.make_pass(frozen)
    bus.make_pass(living)

    assert evicted
    assert frozen.id != old
    assert len(bus.make_pass(frozen)) == 2


def test_member_that_slept_itself_judges_nobody(bus: EmbeddedBusHarness) -> None:
    """After the machine was suspended, the first member to wake does not evict the others."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)
    bus.beat_for(SESSION_S + BEAT_EVERY_S, second, first)

    bus.clock.at_s += 3600
    bus.make_pass(first)

    assert not second.make_pass(bus.ids, {}).evicted


def test_watch_says_when_a_pass_is_needed(bus: EmbeddedBusHarness) -> None:
    """Watching tells an owner that a partition is awaited, and an heir that it is free."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)
    quiet = first.watch().needs_pass
    bus.make_pass(second)
    asked = first.watch().needs_pass
    bus.make_pass(first)
    free = second.watch().needs_pass
    bus.make_pass(second)

    assert (quiet, asked, free) == (False, True, True)
    assert not first.watch().needs_pass
    assert not second.watch().needs_pass


def test_leaving_hands_over_at_once(bus: EmbeddedBusHarness) -> None:
    """Leaving commits and releases in one transaction; the other member then takes all."""
    first, second = bus.member(), bus.member()
    bus.make_pass(first)
    bus.make_pass(second)
    kept = bus.make_pass(first)
    bus.make_pass(second)

    owned = first.leave(dict.fromkeys(kept, 5))
    first.close()

    assert owned == kept
    assert bus.committed() == dict.fromkeys(kept, 5)
    assert bus.make_pass(second) == {1, 2, 3, 4}


def test_deleted_topic_is_lost(bus: EmbeddedBusHarness) -> None:
    """The partitions of a deleted topic are lost, with their offsets.

    They no longer belonged to the member when the next pass began.
    """
    member = bus.member()
    bus.make_pass(member, {})
    bus.make_pass(member, {1: 5})

    delete_topic(bus.file, "t")
    result = member.make_pass(bus.ids, {1: 6})

    assert (result.owned_before, result.holdings, result.evicted) == (frozenset(), (), False)
    assert bus.committed() == {}
