"""`topics apply` of several programs at once: one makes a topic between another's look and its change."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from producer.ports import TopicState
from producer.topics import family as families
from producer.topics.embedded import EmbeddedTopicAdmin
from producer.topics.family import Family, Known
from schemas.clock import SystemClock
from schemas.database import Database
from schemas.errors import UnsafeStateError
from schemas.lanes import InlineLane
from schemas.topics import Topics

TOPICS = Topics("group", ("30s",))


class Overtaken(EmbeddedTopicAdmin):
    """Somebody else applies after its first look."""

    other: Family | None = None
    partitions = 4

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return what was there before the other one came."""
        found = await super().describe(topics)
        other, self.other = self.other, None
        if other is not None:
            await other.apply(self.partitions, None)
        return found


def family(database: Database, admin: EmbeddedTopicAdmin) -> Family:
    return Family(admin=admin, database=database, lane=InlineLane(), topics=TOPICS, clock=SystemClock())


async def applied(database: Database, path: Path, before: int | None, others: int, mine: int) -> dict[str, int]:
    """Return the partitions after two applied at once, to so many each, with so many before (None: no topics)."""
    slow, quick = Overtaken(path), EmbeddedTopicAdmin(path)
    try:
        if before is not None:
            await family(database, quick).apply(before, None)
        slow.other, slow.partitions = family(database, quick), others
        await family(database, slow).apply(mine, None)
        assert await family(database, quick).differences() == []
        return {name: state.partitions for name, state in (await quick.describe(TOPICS.names)).items()}
    finally:
        await slow.close()
        await quick.close()


@pytest.mark.parametrize(("before", "others", "mine", "after"), [(None, 4, 4, 4), (2, 6, 6, 6), (None, 4, 6, 6), (2, 6, 4, 6)])
def test_who_is_overtaken_takes_what_is_there(
    database: Database, tmp_path: Path, before: int | None, others: int, mine: int, after: int
) -> None:
    """Pods apply when they start: one of two ended with 4, for a topic that exists, or has its partitions already."""
    found = asyncio.run(applied(database, tmp_path / "bus.sqlite", before, others, mine))

    assert found == dict.fromkeys(TOPICS.names, after)


def test_a_refusal_that_stays_is_told(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody else changed the topic, what the bus says is the reason."""
    monkeypatch.setattr(families, "OVERTAKEN_S", 0.0)

    async def refused(*_: object) -> None:
        raise UnsafeStateError("no room")

    async def apply() -> None:
        admin = EmbeddedTopicAdmin(tmp_path / "bus.sqlite")
        monkeypatch.setattr(admin, "create", refused)
        try:
            await family(database, admin).apply(4, None)
        finally:
            await admin.close()

    with pytest.raises(UnsafeStateError, match="no room"):
        asyncio.run(apply())


def test_ids_are_stored_though_another_stored_his_first(database: Database) -> None:
    """Both saw a group without ids; the second insert was a duplicate."""
    seen = Known("cluster", {"group.tasks": "id"})
    database.run(lambda c: families._store(c, TOPICS, Known("cluster", {})))

    database.run(lambda c: families._store(c, TOPICS, seen))

    assert database.run(lambda c: families._read(c, "group")) == seen


def test_who_is_late_does_not_forget_a_tier_that_he_does_not_know(database: Database) -> None:
    """Found by seed 212948304: of two configurations that were applied at once the older one was stored last, and no agent could start."""
    new, old, gone = {"group.retry.8s": "new"}, {"group.tasks": "id"}, {"group.tasks": "before", "group.dlq": "gone"}
    database.run(lambda c: families._store(c, TOPICS, Known("cluster", gone | new)))

    database.run(lambda c: families._store(c, TOPICS, Known("cluster", old)))

    assert database.run(lambda c: families._read(c, "group")) == Known("cluster", old | new)


def test_of_another_cluster_nothing_stays(database: Database) -> None:
    """Its topics are others, whatever their names are."""
    database.run(lambda c: families._store(c, TOPICS, Known("cluster", {"group.retry.8s": "id"})))

    database.run(lambda c: families._store(c, TOPICS, Known("another", {"group.tasks": "id"})))

    assert database.run(lambda c: families._read(c, "group")) == Known("another", {"group.tasks": "id"})
