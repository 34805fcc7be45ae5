"""The embedded source without its thread; passes and the clock are moved by hand."""

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from docllm.agent.consumer.embedded import source as embedded_source
from docllm.agent.consumer.embedded.source import SteppedSource
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import Assigned, AtRest, Event, Record, Revoked, SourceFailed
from docllm.producer.bus.embedded import group, log, topics
from docllm.producer.bus.embedded.file import LOCKED_S, BusFile
from docllm.producer.bus.embedded.group import SESSION_S, Member
from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.schemas.task.record.envelope import Outgoing
from tests.support.clock import HandClock
from tests.support.doubles import double_of

RNG = Random(1)  # noqa: S311 - every record here has a key, so nothing is random


class Hand:
    """A source of a topic with one partition, and the events it delivered."""

    def __init__(self, path: Path, clock: HandClock) -> None:
        self.file = BusFile(path)
        self.clock = clock
        if not topics.states_of(self.file, ["t"]):
            topics.create(self.file, "t", 1, TOPIC_SETTINGS)
        known = {"t": topics.states_of(self.file, ["t"])["t"].topic_id}
        self.source = SteppedSource(
            bus_path=path,
            topics=["t"],
            group_id="g",
            topic_ids=double_of(StoredIdsReader, current=lambda: known),
            clock=clock,
        )
        self.events: list[Event] = []

    def send(self, count: int, size: int = 10) -> None:
        log.append(self.file, [Outgoing("t", b"k", bytes(size), [])] * count, RNG)

    async def step(self) -> float | None:
        pause_s = self.source.step()
        await asyncio.sleep(0)
        return pause_s

    def records(self) -> list[Record]:
        return [record for event in self.events if isinstance(event, list) for record in event]

    def failures(self) -> list[SourceFailed]:
        return [event for event in self.events if isinstance(event, SourceFailed)]


@asynccontextmanager
async def hands(folder: Path, count: int = 1) -> AsyncIterator[list[Hand]]:
    clock = HandClock()
    made = [Hand(folder / "bus.sqlite", clock) for _ in range(count)]
    for hand in made:
        hand.source.start(hand.events.append)
    try:
        yield made
    finally:
        for hand in made:
            await _leave(hand)
            hand.file.close()


async def _leave(hand: Hand) -> None:
    leaving = asyncio.ensure_future(hand.source.leave())
    await asyncio.sleep(0)
    while not leaving.done():
        await hand.step()


async def test_first_pass_joins_and_reads(tmp_path: Path) -> None:
    """One pass suffices for a lone member to be assigned and to read."""
    async with hands(tmp_path) as (hand,):
        hand.send(3)

        await hand.step()

        assert isinstance(hand.events[0], Assigned)
        assert [record.offset for record in hand.records()] == [0, 1, 2]


async def test_the_first_pass_takes_the_partitions_of_a_dead_member(tmp_path: Path) -> None:
    """A new member does not think that it owns everything while a dead member holds partitions.

    Otherwise it would have nothing to read.
    """
    async with hands(tmp_path) as (hand,):
        hand.send(3)
        dead = Member(file=hand.file, group_id="g", clock=hand.clock)
        dead.make_pass(
            frozenset(state.topic_id for state in topics.states_of(hand.file, ["t"]).values()),
            {},
        )
        dead.close()

        await hand.step()
        asked = asyncio.ensure_future(hand.source.at_rest())
        await asyncio.sleep(0)
        await hand.step()

        assert await asked == AtRest(joined=True, lag=3)


async def test_loop_that_takes_nothing_is_not_flooded(tmp_path: Path) -> None:
    """Reading stops after a few untaken batches; each batch taken lets the next be read."""
    async with hands(tmp_path) as (hand,):
        hand.send(2_000)

        for _ in range(20):
            hand.source.step()
        await asyncio.sleep(0)
        first = len(hand.records())
        while len(hand.records()) < 2_000:
            assert await hand.step() is not None

        assert first == 800
        assert [record.offset for record in hand.records()] == list(range(2_000))


async def test_pass_says_how_soon_the_next_is_useful(tmp_path: Path) -> None:
    """The next pass is due at once while there is more to read, otherwise after a rest."""
    async with hands(tmp_path) as (hand,):
        hand.send(201)

        busy = await hand.step()
        idle = await hand.step()

        assert busy == 0.0
        assert idle is not None
        assert idle > 0


async def test_locked_file_is_reported_once_and_outlived(tmp_path: Path) -> None:
    """A file that is locked for long is reported once; the mark is committed later.

    For some seconds it may be locked on any busy machine, which nobody has to know.
    """
    async with hands(tmp_path) as (hand,):
        hand.send(5)
        await hand.step()
        partition = hand.records()[0].partition
        hand.source.mark(partition, 5)
        hand.source._reader._file._db.execute("PRAGMA busy_timeout=1")  # type: ignore[union-attr]
        other = sqlite3.connect(hand.file.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        hand.clock.at_s += 3
        await hand.step()
        hand.clock.at_s += LOCKED_S - 1
        await hand.step()
        assert hand.failures() == []
        hand.clock.at_s += 1
        await hand.step()
        await hand.step()
        other.execute("COMMIT")
        other.close()

        await hand.step()

        assert [(failure.fatal, "locked" in failure.reason) for failure in hand.failures()] == [
            (False, True)
        ]
        assert topics.backlog(hand.file, "g", ["t"]).committed == {("t", 0): 5}


async def test_failed_commit_is_answered_and_made_later(tmp_path: Path) -> None:
    """A failed commit returns all the same; the mark is committed once the file answers."""
    async with hands(tmp_path) as (hand,):
        hand.send(5)
        await hand.step()
        hand.source.mark(hand.records()[0].partition, 5)
        hand.source._reader._file._db.execute("PRAGMA busy_timeout=1")  # type: ignore[union-attr]
        other = sqlite3.connect(hand.file.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        commit = asyncio.ensure_future(hand.source.commit())
        await asyncio.sleep(0)
        await hand.step()
        await commit
        other.execute("ROLLBACK")
        other.close()
        before = topics.backlog(hand.file, "g", ["t"]).committed

        hand.clock.at_s += 1
        await hand.step()

        assert before == {}
        assert topics.backlog(hand.file, "g", ["t"]).committed == {("t", 0): 5}


async def test_evicted_source_says_that_its_partitions_are_lost(tmp_path: Path) -> None:
    """A source frozen for longer than the session learns that its partitions are lost.

    It joins again.
    """
    async with hands(tmp_path, count=2) as (frozen, living):
        frozen.send(5)
        await frozen.step()
        partition = frozen.records()[0].partition
        for _ in range(int(SESSION_S) * 2):
            living.clock.at_s += 1
            await living.step()
        frozen.source.mark(partition, 5)

        await frozen.step()
        joined = frozen.source._reader._joined  # type: ignore[union-attr]
        await frozen.step()

        assert Revoked((partition,), lost=True) in frozen.events
        assert not joined
        assert len(living.records()) == 5
        assert topics.backlog(frozen.file, "g", ["t"]).committed == {}


async def test_a_machine_without_open_files_left_ends_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the machine has no open files left, a look for dead members is made later.

    Calls in flight use up the files for a while, and the look opens the members' locks.
    """

    def nothing_left(_folder: Path, _member: str) -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    async with hands(tmp_path, count=2) as (first, other):
        await first.step()
        await other.step()
        with monkeypatch.context() as poor:
            poor.setattr(group, "is_dead", nothing_left)
            first.clock.at_s += 1
            assert await first.step() is not None

        first.send(3)
        first.clock.at_s += 3
        for hand in (first, other, first, other):
            await hand.step()

        assert [
            (failure.fatal, "Too many open files" in failure.reason) for failure in first.failures()
        ] == [(False, True)]
        assert len(first.records() + other.records()) == 3


async def test_evicted_source_that_gets_no_new_lock_comes_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evicted source that gets no new lock returns later.

    It used to free its old lock twice, which is another file by then, and died silently, so nobody
    read its partitions.
    """

    class NoLock:
        def __init__(self, _folder: Path, *, member: str) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    async with hands(tmp_path, count=2) as (frozen, living):
        await frozen.step()
        for _ in range(int(SESSION_S) * 2):
            living.clock.at_s += 1
            await living.step()
        with monkeypatch.context() as poor:
            poor.setattr(group, "LifeLock", NoLock)
            assert await frozen.step() is not None

        for _ in range(5):
            frozen.clock.at_s += 1
            await frozen.step()
            await living.step()

        assert [failure.fatal for failure in frozen.failures()] == [False]
        assert frozen.source._reader._joined  # type: ignore[union-attr]
        assert len(frozen.file.all("SELECT id FROM member")) == 2


async def test_source_that_breaks_answers_everything(tmp_path: Path) -> None:
    """A permanent error ends the source with a fatal event, and answers all waiting calls.

    Later calls are answered too.
    """
    async with hands(tmp_path) as (hand,):
        await hand.step()
        hand.source._reader.topic_ids.current = lambda: 1 // 0  # type: ignore[method-assign,union-attr]
        hand.clock.at_s += 3
        asking = asyncio.ensure_future(hand.source.at_rest())
        await asyncio.sleep(0)

        last = await hand.step()
        await asyncio.sleep(0)

        assert last is None
        assert (await asking).joined
        assert [failure.fatal for failure in hand.failures()] == [True]
        assert await hand.source.at_rest() == AtRest(joined=False, lag=0)
        await hand.source.commit()


async def test_bus_that_cannot_be_opened_is_fatal(tmp_path: Path) -> None:
    """A bus file that cannot be opened ends the source at once, with advice."""
    (tmp_path / "file").write_text("")
    source = SteppedSource(
        bus_path=tmp_path / "file" / "bus.sqlite",
        topics=["t"],
        group_id="g",
        topic_ids=double_of(StoredIdsReader, current=dict),
        clock=HandClock(),
    )
    events: list[Event] = []
    source.start(events.append)

    last = source.step()
    await asyncio.sleep(0)

    assert last is None
    assert isinstance(events[0], SourceFailed)
    assert events[0].fatal
    assert "bus.sqlite" in events[0].reason


async def test_a_source_that_could_not_join_leaves_with_its_next_pass(tmp_path: Path) -> None:
    """The source holds nothing that it could give back, so it does not wait until it can join."""

    def no_file_left(**_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    hand = Hand(tmp_path / "bus.sqlite", HandClock())
    hand.source._open = no_file_left  # type: ignore[assignment]
    hand.source.start(hand.events.append)
    assert await hand.step() is not None
    leaving = asyncio.ensure_future(hand.source.leave())
    await asyncio.sleep(0)

    assert await hand.step() is None
    await asyncio.wait_for(leaving, 1)
    assert not any(failure.fatal for failure in hand.failures())
    hand.file.close()


async def test_leaving_has_a_limit_while_the_bus_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions get their answers then, and records that come later are not delivered."""
    monkeypatch.setattr(embedded_source, "LEAVE_S", 0.01)
    async with hands(tmp_path) as (hand,):
        await hand.step()
        asked = asyncio.ensure_future(hand.source.at_rest())

        await asyncio.wait_for(hand.source.leave(), 20)
        hand.send(1)
        await hand.step()

        assert await asked == AtRest(joined=False, lag=0)
        assert hand.records() == []


def test_source_that_was_never_started_leaves_without_a_word(tmp_path: Path) -> None:
    """A source that leaves before it was started touches nothing."""
    source = SteppedSource(
        bus_path=tmp_path / "bus.sqlite",
        topics=["t"],
        group_id="g",
        topic_ids=double_of(StoredIdsReader, current=dict),
        clock=HandClock(),
    )

    asyncio.run(source.leave())

    assert list(tmp_path.iterdir()) == []
