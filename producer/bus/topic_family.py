"""A group's topics as they should be.

`topics apply` makes and grows them; `check` and every agent compare them with what exists.

The ids of the cluster and of the topics are stored in the ledger, so that a topic that was deleted
and made again is noticed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, bindparam, select, update

from docllm.producer.ports import TopicAdmin, TopicState
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.sql import insert_new
from docllm.schemas.ledger.tables import group_info
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.topics import RESULTS, Topics

PARTITIONS = 12  # the default for a topic on Kafka
EMBEDDED_PARTITIONS = 4
APPEAR_S = 30.0  # how long brokers may take to show a topic that was just made
OVERTAKEN_S = 3.0  # how long they may take to show what another program changed
CHECK_EVERY_S = 0.2
# The settings that every topic must have. A retention limit would delete waiting work.
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(4 << 20),
}
COMPRESSION = "compression.type"
# Dead letters and results are also read by other programs. Every Kafka client can read gzip, but
# some lack LZ4, the codec of the other records. docllm itself works with any codec.
LETTER_COMPRESSION = "gzip"
_READ_BY_ALL = {LETTER_COMPRESSION, "uncompressed"}


def settings_of(topic: str) -> dict[str, str]:
    """Return the settings that `TopicAdmin.create` and `configure` give a topic."""
    return TOPIC_SETTINGS | ({COMPRESSION: LETTER_COMPRESSION} if _is_for_others(topic) else {})


def _is_for_others(topic: str) -> bool:
    return topic.endswith((".dlq", f".{RESULTS}"))


# Every agent runs this every few seconds.
_STORED_IDS = select(group_info).where(group_info.c.group_name == bindparam("of_group"))


@dataclass(frozen=True, slots=True)
class StoredIds:
    """Cluster and topic ids as `topics apply` saw them."""

    cluster_id: str
    topic_ids: Mapping[str, str]


@dataclass(kw_only=True, eq=False)
class TopicFamily:
    """The topics of one group, on one bus and in one ledger."""

    admin: TopicAdmin
    transactions: Transactions
    topics: Topics
    clock: Clock

    async def apply(
        self, partitions: int | None, replication_factor: int | None, *, default: int = PARTITIONS
    ) -> list[str]:
        """Make missing topics, add partitions, set settings, store ids; return a line for each.

        Partitions are never reduced. With None, none are added either: a missing topic gets as many
        as the group's other topics have, or `default` if it is the first.
        """
        states = await self.admin.describe(self.topics.names)
        fewest = min((state.partitions for state in states.values()), default=default)
        lines: list[str] = []
        for name in self.topics.names:
            if name in states or not self.topics.is_old(name):
                needed = partitions or (states[name].partitions if name in states else fewest)
                lines += await self._apply_one(name, states.get(name), needed, replication_factor)
        lines += await self._old_tier_lines(states)
        while (are_new := await self._store_current()) is None:
            pass  # another program stored ids that may be newer than those seen here: look again
        return [*lines, "topic ids stored"] if are_new else lines

    async def wider_than(self, partitions: int) -> dict[str, int]:
        """Return each topic that has more partitions, with their number.

        `apply` leaves such a topic as it is, since fewer partitions would lose records.
        """
        states = await self.admin.describe(self.topics.names)
        return {
            name: state.partitions
            for name, state in sorted(states.items())
            if state.partitions > partitions
        }

    async def _apply_one(
        self, name: str, state: TopicState | None, partitions: int, replication_factor: int | None
    ) -> list[str]:
        """Change one topic.

        A refusal is ignored if another program that also applies has changed the topic meanwhile.
        """
        while True:
            try:
                return await self._change(name, state, partitions, replication_factor)
            except UnsafeStateError:
                before, state = state, await self._wait_for_change(name, state)
                if state == before:
                    raise

    async def _wait_for_change(self, name: str, state: TopicState | None) -> TopicState | None:
        """Wait for a change of the topic's state; return the new state, or `state` after a timeout.

        Not every broker learns of a change immediately.
        """
        waited_s = 0.0
        while True:
            current = (await self.admin.describe([name])).get(name)
            if current not in (None, state) or waited_s >= OVERTAKEN_S:
                return current or state
            await self.clock.sleep(CHECK_EVERY_S)
            waited_s += CHECK_EVERY_S

    async def _change(
        self, name: str, state: TopicState | None, partitions: int, replication_factor: int | None
    ) -> list[str]:
        if state is None:
            await self.admin.create(name, partitions, replication_factor)
            crash.reach("topics.created")
            return [f"{name}: made with {partitions} partitions"]
        lines = []
        if state.partitions < partitions:
            await self.admin.grow(name, partitions)
            crash.reach("topics.grown")
            lines.append(f"{name}: raised from {state.partitions} to {partitions} partitions")
        if _setting_differences(name, state):
            await self.admin.configure(name)
            crash.reach("topics.configured")
            lines.append(f"{name}: settings set")
        elif codec := _codec_of_few(name, state):
            lines.append(await self._compress_for_all(name, codec))
        return lines

    async def _compress_for_all(self, name: str, codec: str) -> str:
        """Set the codec of a topic that others read; a refusal is ignored."""
        try:
            await self.admin.configure(name)
        except UnsafeStateError as error:
            return f"{name}: {COMPRESSION} stays {codec}: {error}"
        return f"{name}: {COMPRESSION} set to {LETTER_COMPRESSION}; older records stay as they are"

    async def _old_tier_lines(self, states: Mapping[str, TopicState]) -> list[str]:
        """Report for each tier of another configuration whether its topic is still needed."""
        lines = []
        for name in filter(self.topics.is_old, self.topics.names):
            if name not in states:
                lines.append(f"{name}: the topic of an old tier is gone")
                continue
            backlog = await self.admin.backlog(
                self.topics.consumer_group(self.topics.destination(name)), [name]
            )
            advice = (
                f"{backlog.lag} records wait there; agents will run them"
                if backlog.lag
                else "empty; delete it if you like, run this again, and restart the agents"
            )
            lines.append(f"{name}: an old tier, {advice}")
        return lines

    async def _store_current(self) -> bool | None:
        """Store the ids that exist now; return whether they were new.

        Returns None when another program stored other ids meanwhile.
        """
        stored = await self.stored_ids()
        states = await self._all_states()
        current = StoredIds(
            await self.admin.cluster_id(),
            {name: state.topic_id for name, state in sorted(states.items())},
        )
        if current == stored:
            return False
        is_stored = await self.transactions.write(_store, self.topics, stored, current)
        return True if is_stored else None

    async def _all_states(self) -> Mapping[str, TopicState]:
        """Return the topics once the brokers show all of them.

        A cluster takes a moment until every broker knows of a new topic. Raises UnsafeStateError
        when a topic does not appear in time.
        """
        waited_s = 0.0
        # Missing old tiers are not an error.
        needed = {name for name in self.topics.names if not self.topics.is_old(name)}
        while missing := needed - set(states := await self.admin.describe(self.topics.names)):
            if waited_s >= APPEAR_S:
                shown = ", ".join(sorted(missing))
                raise UnsafeStateError(
                    f"the cluster does not show {shown} yet; check its brokers, then run: "
                    f"{self._apply_command()}"
                )
            await self.clock.sleep(CHECK_EVERY_S)
            waited_s += CHECK_EVERY_S
        return states

    async def stored_ids(self) -> StoredIds | None:
        """Return the ids that `topics apply` stored."""
        return await self.transactions.read(_read, self.topics.group)

    async def never_made(self) -> list[str]:
        """Return the topics of the configuration that were never made.

        On embedded parts the next load or agent creates them.
        """
        stored = await self.stored_ids()
        return [
            name for name in self.topics.names if stored is None or name not in stored.topic_ids
        ]

    async def differences(self, leave_out: Collection[str] = ()) -> list[str]:
        """Return how the topics differ from what they must be, a line for each difference.

        Topics in `leave_out` are not compared.
        """
        stored = await self.stored_ids()
        if stored is None:
            return [f"group {self.topics.group} has no topics yet"]
        lines = []
        cluster_id = await self.admin.cluster_id()
        if cluster_id != stored.cluster_id:
            lines.append(f"the cluster is {cluster_id}, the ledger knows {stored.cluster_id}")
        states = await self.admin.describe(self.topics.names)
        for name in self.topics.names:
            lines += [] if name in leave_out else _difference(name, states.get(name), stored)
        return lines

    async def advice(self) -> list[str]:
        """Return optional advice, about codecs that some clients cannot read."""
        states = sorted((await self.admin.describe(self.topics.names)).items())
        codecs = {name: codec for name, state in states if (codec := _codec_of_few(name, state))}
        return [
            f"topic {name}: {COMPRESSION} is {codec}, and some clients cannot read its records; "
            f"to change that: {self._apply_command()}"
            for name, codec in codecs.items()
        ]

    def _apply_command(self) -> str:
        """Return the command that makes and sets topics."""
        return f"docllm topics apply --group {self.topics.group}"

    async def changed_settings(self) -> dict[str, str]:
        """Return what differs from the settings that every topic must have, by topic."""
        states = sorted((await self.admin.describe(self.topics.names)).items())
        lines = {name: ", ".join(_setting_differences(name, state)) for name, state in states}
        return {name: line for name, line in lines.items() if line}

    async def hidden_settings(self) -> list[str]:
        """Return the settings that the brokers do not reveal, a line for each.

        These settings cannot be compared, and are not treated as errors.
        """
        states = sorted((await self.admin.describe(self.topics.names)).items())
        missing = [
            (name, setting)
            for name, state in states
            for setting in TOPIC_SETTINGS
            if setting not in state.settings
        ]
        return [
            f"topic {name}: {setting} cannot be read from the broker; it must be "
            f"{TOPIC_SETTINGS[setting]}"
            for name, setting in missing
        ]

    async def require(self, leave_out: Collection[str] = ()) -> StoredIds:
        """Return the stored ids; raise UnsafeStateError when the topics are not what they must be.

        Topics in `leave_out` are not compared.
        """
        differences = await self.differences(leave_out)
        stored = await self.stored_ids()
        if differences or stored is None:
            raise UnsafeStateError(f"{'; '.join(differences)}; run: {self._apply_command()}")
        return stored


def with_old_tiers(connection: Connection, topics: Topics) -> Topics:
    """Return the topics plus the tiers that `topics apply` knew under another configuration."""
    stored = _read(connection, topics.group)
    return topics if stored is None else topics.with_old_tiers(stored.topic_ids)


def _setting_differences(topic: str, state: TopicState) -> list[str]:
    """Return what differs; how long results stay is for whoever reads them to say."""
    is_free = topic.endswith(f".{RESULTS}")
    return [
        f"{name} is {state.settings[name]}, must be {value}"
        for name, value in TOPIC_SETTINGS.items()
        if state.settings.get(name, value) != value
        and not (is_free and name.startswith("retention."))
    ]


def _codec_of_few(name: str, state: TopicState) -> str | None:
    """Return the codec of a topic that others read if some clients lack it; "producer" is LZ4."""
    codec = state.settings.get(COMPRESSION, LETTER_COMPRESSION)
    return codec if _is_for_others(name) and codec not in _READ_BY_ALL else None


def _difference(name: str, state: TopicState | None, stored: StoredIds) -> list[str]:
    if state is None:
        return [f"topic {name} is missing"]
    lines = []
    if stored.topic_ids.get(name) != state.topic_id:
        lines.append(
            f"topic {name} was created again: its id is {state.topic_id}, "
            f"the ledger knows {stored.topic_ids.get(name)}"
        )
    return [*lines, *(f"topic {name}: {line}" for line in _setting_differences(name, state))]


def _read(connection: Connection, group: str) -> StoredIds | None:
    row = connection.execute(_STORED_IDS, {"of_group": group}).one_or_none()
    return None if row is None else StoredIds(row.cluster_id, orjson.loads(row.topic_ids))


def _store(
    connection: Connection, topics: Topics, before: StoredIds | None, current: StoredIds
) -> bool:
    """Store the ids; return False if the ledger holds neither them nor `before`.

    Keep the stored ids of topics not listed here, such as tiers of a newer configuration.
    """
    group = topics.group
    # Several programs may apply at once.
    connection.execute(
        insert_new(connection, group_info), {"group_name": group} | _columns(current)
    )
    row = connection.execute(_STORED_IDS.with_for_update(), {"of_group": group}).one()
    in_ledger = StoredIds(row.cluster_id, orjson.loads(row.topic_ids))
    others = {
        name: topic_id for name, topic_id in in_ledger.topic_ids.items() if name not in topics.names
    }
    merged = (
        StoredIds(current.cluster_id, {**others, **current.topic_ids})
        if in_ledger.cluster_id == current.cluster_id
        else current
    )
    if in_ledger not in (merged, before):
        return False
    connection.execute(
        update(group_info).where(group_info.c.group_name == group).values(**_columns(merged))
    )
    return True


def _columns(stored: StoredIds) -> dict[str, str]:
    return {
        "cluster_id": stored.cluster_id,
        "topic_ids": orjson.dumps(dict(stored.topic_ids)).decode(),
    }
