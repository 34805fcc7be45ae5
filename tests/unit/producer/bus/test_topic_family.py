"""Several `topics apply` at once: one creates a topic between another's look and change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from docllm.producer.bus import topic_family as families
from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin
from docllm.producer.bus.topic_family import StoredIds, TopicFamily
from docllm.producer.ports import TopicState
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.record.topics import Topics

TOPICS = Topics("group", ("30s",))


class Overtaken(EmbeddedTopicAdmin):
    """Another program applies after this one's first look."""

    other: TopicFamily | None = None
    partitions = 4

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the state before the other program applied."""
        descriptions = await super().describe(topics)
        other, self.other = self.other, None
        if other is not None:
            await other.apply(self.partitions, None)
        return descriptions


def family(database: Database, admin: EmbeddedTopicAdmin, topics: Topics = TOPICS) -> TopicFamily:
    return TopicFamily(
        admin=admin,
        transactions=Transactions(database=database, executor=InlineExecutor()),
        topics=topics,
        clock=SystemClock(),
    )


async def applied(
    database: Database, path: Path, before: int | None, others: int, own: int
) -> dict[str, int]:
    """Return the partitions after two programs applied at once, to the given numbers.

    `before` is the number of partitions before, None without topics.
    """
    slow, quick = Overtaken(path), EmbeddedTopicAdmin(path)
    try:
        if before is not None:
            await family(database, quick).apply(before, None)
        slow.other, slow.partitions = family(database, quick), others
        await family(database, slow).apply(own, None)
        assert await family(database, quick).differences() == []
        return {
            name: state.partitions for name, state in (await quick.describe(TOPICS.names)).items()
        }
    finally:
        await slow.close()
        await quick.close()


@pytest.mark.parametrize(
    ("before", "others", "own", "after"),
    [(None, 4, 4, 4), (2, 6, 6, 6), (None, 4, 6, 6), (2, 6, 4, 6)],
)
def test_a_program_that_is_overtaken_accepts_the_topics_it_finds(
    database: Database, tmp_path: Path, before: int | None, others: int, own: int, after: int
) -> None:
    """A program that is overtaken accepts what it finds.

    Pods apply when they start. One of two used to end with 4, for a topic that exists or already
    has its partitions.
    """
    partitions = asyncio.run(
        applied(
            database=database, path=tmp_path / "bus.sqlite", before=before, others=others, own=own
        )
    )

    assert partitions == dict.fromkeys(TOPICS.names, after)


def test_a_lasting_refusal_is_reported(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nobody else changed the topic, the bus's refusal is the reason."""
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


class Limited(EmbeddedTopicAdmin):
    """Somebody has set a retention of a minute for two topics."""

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the states with that retention."""
        states = await super().describe(topics)
        for name in states.keys() & {"group.results", "group.dlq"}:
            settings = {**states[name].settings, "retention.ms": "60000"}
            states[name] = replace(states[name], settings=settings)
        return states


async def test_results_may_have_any_retention(database: Database, tmp_path: Path) -> None:
    """Their readers know how long they need them; waiting work and letters have no limit."""
    admin = Limited(tmp_path / "bus.sqlite")
    with_results = replace(TOPICS, results=True)
    try:
        made = family(database, EmbeddedTopicAdmin(tmp_path / "bus.sqlite"), with_results)
        lines = await made.apply(4, None)
        assert "group.results: made with 4 partitions" in lines
        assert await family(database, admin, with_results).differences() == [
            "topic group.dlq: retention.ms is 60000, must be -1"
        ]
    finally:
        await admin.close()


class OlderLetters(EmbeddedTopicAdmin):
    """Its topic of dead letters was made with another codec."""

    codec = "producer"

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the states with that codec, until it is changed."""
        states = await super().describe(topics)
        name = TOPICS.name("dlq")
        if self.codec and name in states:
            settings = {**states[name].settings, "compression.type": self.codec}
            states[name] = replace(states[name], settings=settings)
        return states

    async def configure(self, topic: str) -> None:
        """Change the codec."""
        await super().configure(topic)
        self.codec = ""


async def test_letters_of_an_older_group_are_accepted_and_changed_by_apply(
    database: Database, tmp_path: Path
) -> None:
    """Another codec is no difference, so agents start; the advice says how to change it."""
    admin = OlderLetters(tmp_path / "bus.sqlite")
    try:
        await family(database, EmbeddedTopicAdmin(tmp_path / "bus.sqlite")).apply(4, None)
        older = family(database, admin)

        assert await older.differences() == []
        assert (await older.require()).topic_ids
        (advice,) = await older.advice()
        assert advice == (
            "topic group.dlq: compression.type is producer, and some clients cannot read its "
            "records; to change that: docllm topics apply --group group"
        )
        assert await older.apply(4, None) == [
            "group.dlq: compression.type set to gzip; older records stay as they are"
        ]
        assert await older.apply(4, None) == []
        assert await older.advice() == []
    finally:
        await admin.close()


@pytest.mark.parametrize(("codec", "advised"), [("uncompressed", 0), ("gzip", 0), ("zstd", 1)])
def test_a_codec_that_every_client_reads_needs_no_advice(
    database: Database, tmp_path: Path, codec: str, advised: int
) -> None:
    """Whoever chose a codec that all clients read keeps it, without a word."""

    async def advice() -> list[str]:
        admin = OlderLetters(tmp_path / "bus.sqlite")
        admin.codec = codec
        try:
            await family(database, EmbeddedTopicAdmin(tmp_path / "bus.sqlite")).apply(4, None)
            return await family(database, admin).advice()
        finally:
            await admin.close()

    assert len(asyncio.run(advice())) == advised


def test_a_service_that_keeps_its_codec_hinders_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the codec cannot be changed, `apply` says so and goes on."""
    monkeypatch.setattr(families, "OVERTAKEN_S", 0.0)

    async def refused(_topic: str) -> None:
        raise UnsafeStateError("Kafka refused to configure group.dlq: not allowed")

    async def lines() -> list[str]:
        admin = OlderLetters(tmp_path / "bus.sqlite")
        try:
            await family(database, EmbeddedTopicAdmin(tmp_path / "bus.sqlite")).apply(4, None)
            monkeypatch.setattr(admin, "configure", refused)
            return await family(database, admin).apply(4, None)
        finally:
            await admin.close()

    reason = "Kafka refused to configure group.dlq: not allowed"
    assert asyncio.run(lines()) == [f"group.dlq: compression.type stays producer: {reason}"]


class ChangedSettings(EmbeddedTopicAdmin):
    """Another program set a limit of retention on one topic."""

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the states with the limit."""
        states = await super().describe(topics)
        state = states["group.tasks"]
        limit = {**state.settings, "retention.ms": "1000"}
        return states | {"group.tasks": replace(state, settings=limit)}


def test_apply_without_a_number_adds_no_partitions(database: Database, tmp_path: Path) -> None:
    """It is the command that agents name, and partitions cannot be taken away again."""

    async def run() -> list[str]:
        quick, changed = (
            kind(tmp_path / "bus.sqlite") for kind in (EmbeddedTopicAdmin, ChangedSettings)
        )
        await quick.create("group.tasks", 2, None)
        try:
            await family(database, quick).apply(None, None, default=12)
            topics = family(database, changed)
            lines = await topics.apply(None, None, default=12)
            states = await quick.describe(TOPICS.names)

            assert {state.partitions for state in states.values()} == {2}
            assert states.keys() == set(TOPICS.names)
            assert await topics.changed_settings() == {
                "group.tasks": "retention.ms is 1000, must be -1"
            }
            return lines
        finally:
            await quick.close()
            await changed.close()

    assert asyncio.run(run()) == ["group.tasks: settings set"]


def test_the_first_topics_have_the_default_number_of_partitions(
    database: Database, tmp_path: Path
) -> None:
    """Without a number and without topics, there is only the default."""

    async def run() -> set[int]:
        admin = EmbeddedTopicAdmin(tmp_path / "bus.sqlite")
        try:
            await family(database, admin).apply(None, None, default=3)
            return {state.partitions for state in (await admin.describe(TOPICS.names)).values()}
        finally:
            await admin.close()

    assert asyncio.run(run()) == {3}


def stored(database: Database, before: StoredIds | None, seen: StoredIds) -> bool:
    return database.run(lambda c: families._store(c, TOPICS, before, seen))


def test_a_program_that_saw_older_topics_looks_again(database: Database) -> None:
    """A program that saw topics before another stored theirs looks again.

    Found by seed 961733466: a database answer was lost for 16 s, in which a topic was recreated and
    its id stored. The second try stored the old id, and no agent could start.
    """
    first, second = (
        StoredIds("cluster", {"group.tasks": "first"}),
        StoredIds("cluster", {"group.tasks": "second"}),
    )
    stored(database, None, first)
    stored(database, first, second)

    assert not stored(database, None, first)
    assert database.run(lambda c: families._read(c, "group")) == second


def test_a_second_try_finds_its_own_ids(database: Database) -> None:
    """A second try finds its own ids, which a lost answer had stored."""
    first, second = (
        StoredIds("cluster", {"group.tasks": "first"}),
        StoredIds("cluster", {"group.tasks": "second"}),
    )
    stored(database, None, first)

    assert stored(database, first, second)
    assert stored(database, first, second)


def test_apply_looks_again_when_another_was_quicker(database: Database, tmp_path: Path) -> None:
    """`apply` looks again if another program was quicker, because its view is old."""

    async def apply() -> list[str]:
        admin = EmbeddedTopicAdmin(tmp_path / "bus.sqlite")
        quick, slow = family(database, admin), family(database, admin)
        described, looks = slow._all_states, []

        async def old_at_first() -> Mapping[str, TopicState]:
            looks.append(await described())
            if len(looks) > 1:
                return looks[-1]
            await quick.apply(4, None)
            return {name: replace(state, topic_id="old") for name, state in looks[0].items()}

        try:
            await quick.apply(4, None)
            database.run(
                lambda c: families._store(
                    c, TOPICS, families._read(c, "group"), StoredIds("another", {})
                )
            )
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(slow, "_all_states", old_at_first)
                await slow.apply(4, None)
            return await quick.differences()
        finally:
            await admin.close()

    assert asyncio.run(apply()) == []


def test_an_older_configuration_does_not_forget_a_new_tier(database: Database) -> None:
    """An older configuration does not forget a tier that it does not know.

    Found by seed 212948304: of two configurations applied at once, the older one was stored last,
    and no agent could start.
    """
    new, old, gone = (
        {"group.retry.8s": "new"},
        {"group.tasks": "id"},
        {"group.tasks": "before", "group.dlq": "gone"},
    )
    before = StoredIds("cluster", gone | new)
    stored(database, None, before)

    assert stored(database, before, StoredIds("cluster", old))
    assert database.run(lambda c: families._read(c, "group")) == StoredIds("cluster", old | new)


def test_nothing_of_another_cluster_stays(database: Database) -> None:
    """Nothing of another cluster stays: its topics are others, whatever their names."""
    before = StoredIds("cluster", {"group.retry.8s": "id"})
    stored(database, None, before)

    assert stored(database, before, StoredIds("another", {"group.tasks": "id"}))
    assert database.run(lambda c: families._read(c, "group")) == StoredIds(
        "another", {"group.tasks": "id"}
    )


def test_a_lane_that_was_deleted_is_missed(database: Database, tmp_path: Path) -> None:
    """A lane that was made once may hold tasks, so its absence is a fault like any other's."""

    async def story() -> list[str]:
        admin = EmbeddedTopicAdmin(tmp_path / "bus.sqlite")
        topics = family(database, admin)
        await topics.apply(4, None)
        described = admin.describe

        async def without(topics: Sequence[str]) -> dict[str, TopicState]:
            states = await described(topics)
            states.pop("group.tasks.bulk", None)
            return states

        admin.describe = without  # type: ignore[method-assign]
        try:
            return await topics.differences()
        finally:
            await admin.close()

    assert asyncio.run(story()) == ["topic group.tasks.bulk is missing"]
