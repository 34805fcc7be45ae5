"""A broker in memory: topics, partitions, consumer groups.

It stores every record, so that checkers can look back. Its groups work like the embedded bus: a
partition has an owner, the member that reads it, and an heir, the member that shall read it. A
living owner releases first. An evicted owner loses the partition at once, and may notice late.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from docllm.producer.bus.embedded.group import AssignablePartition, balance
from docllm.producer.bus.murmur2 import partition_of
from docllm.schemas.task.record.envelope import Outgoing
from tests.simulation.eventloop import Process

Cursor = tuple[str, int]
SESSION_S = 10.0


@dataclass(slots=True)
class Stored:
    """One record.

    `turn` is the time of its writing among all events of the run, `lost` the time when a fault made
    the broker lose it.
    """

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    turn: int = 0
    lost: int | None = None


@dataclass(slots=True)
class Log:
    """One partition."""

    low: int = 0
    records: list[Stored] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Return the offset of the next record."""
        return len(self.records)


@dataclass(slots=True)
class Topic:
    """One topic."""

    topic_id: str
    logs: list[Log]


class Group:
    """One consumer group.

    A member subscribes to topics, and to none whose id it does not trust.
    """

    def __init__(self, *, name: str, broker: "Broker") -> None:
        self.name = name
        self.broker = broker
        self.seen_s: dict[str, float] = {}
        self.topics: dict[str, frozenset[str]] = {}
        self.owner: dict[Cursor, str] = {}
        self.heir: dict[Cursor, str] = {}
        self.committed: dict[Cursor, int] = {}
        self.foreign: set[Cursor] = set()  # committed by somebody who does not own them
        self._names = count(1)

    def join(self, topics: frozenset[str], now_s: float) -> str:
        """Add a new member; return its name."""
        member = f"{self.name}-{next(self._names)}"
        self.seen_s[member], self.topics[member] = now_s, topics
        self.balance()
        return member

    def subscribe(self, member: str, topics: frozenset[str]) -> None:
        """Change the topics that a member reads."""
        if self.topics.get(member) != topics:
            self.topics[member] = topics
            self.balance()

    def leave(self, member: str) -> None:
        """Forget a member, whether it knows or not."""
        self.seen_s.pop(member, None)
        self.topics.pop(member, None)
        self.owner = {place: owner for place, owner in self.owner.items() if owner != member}
        self.balance()

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        for positions in (self.owner, self.heir, self.committed):
            for place in [place for place in positions if place[0] == topic]:
                del positions[place]
        self.foreign = {place for place in self.foreign if place[0] != topic}

    def evict_silent(self, now_s: float) -> None:
        """Forget members that have sent no heartbeat for a session."""
        for member, seen_s in list(self.seen_s.items()):
            if now_s - seen_s > SESSION_S:
                self.leave(member)

    def balance(self) -> None:
        """Assign all partitions anew."""
        places = self._places()
        shares = [
            AssignablePartition(number, place[0], self.heir.get(place))
            for number, place in enumerate(places)
        ]
        heirs = balance(shares, {member: set(topics) for member, topics in self.topics.items()})
        self.heir = {
            place: heir
            for number, place in enumerate(places)
            if (heir := heirs[number]) is not None
        }

    def shuffle(self, rng: random.Random) -> None:
        """Assign all partitions at random, like a rebalance at a bad moment."""
        members = sorted(member for member, topics in self.topics.items() if topics)
        if members:
            self.heir = {place: rng.choice(members) for place in self._places()}

    def take(self, place: Cursor, member: str) -> None:
        """Make a member the owner of a partition without one."""
        self.owner[place] = member
        self.foreign.discard(place)

    def commit(self, place: Cursor, offset: int, member: str) -> None:
        """Accept a commit."""
        self.broker.on_commit(self, place, offset)
        self.committed[place] = offset
        if self.owner.get(place) == member:
            self.foreign.discard(place)
        else:
            self.foreign.add(place)

    def ahead(self) -> int:
        """Return on how many partitions a foreign commit is ahead of the owner."""
        return sum(
            self.committed.get(place, 0) > self.broker.log(place).low for place in self.foreign
        )

    def start(self, place: Cursor) -> tuple[int, bool]:
        """Return where a new owner reads on, and whether records before it may be missing."""
        log, offset = self.broker.log(place), self.committed.get(place)
        if offset is not None and log.low <= offset <= log.end:
            return offset, False
        return log.low, offset is not None or log.low > 0

    def _places(self) -> list[Cursor]:
        topics = sorted(self.broker.topics.keys() & frozenset[str]().union(*self.topics.values()))
        return [
            (topic, number)
            for topic in topics
            for number in range(len(self.broker.topics[topic].logs))
        ]


class Broker:
    """All topics and groups of one run.

    `turn` numbers the writes among all events of the run.
    """

    def __init__(
        self, *, rng: random.Random, utc_s: Callable[[], float], turn: Callable[[], int]
    ) -> None:
        self.rng = rng
        self.utc_s = utc_s
        self.turn = turn
        self.topics: dict[str, Topic] = {}
        self.deleted: list[tuple[str, Topic]] = []
        self.groups: dict[str, Group] = {}
        self.readers: dict[str, list[Callable[[], None]]] = {}  # to be woken by a write, by topic
        self.on_commit: Callable[[Group, Cursor, int], None] = lambda _group, _place, _offset: None
        self.on_revoked: Callable[[], None] = lambda: None  # called in the reader's own program
        self.epochs = count(1)
        self.sending: list[Process | None] = []  # who is about to write, once for each time
        self._ids = count(1)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; its groups assign its partitions.

        That holds even if no member has noticed that an earlier topic of that name was gone.
        """
        self.topics[topic] = Topic(f"id-{next(self._ids)}", [Log() for _ in range(partitions)])
        for group in self.groups.values():
            group.balance()

    def delete(self, topic: str) -> None:
        """Delete a topic, with its records and offsets."""
        self.deleted.append((topic, self.topics.pop(topic)))
        for group in self.groups.values():
            group.forget_topic(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic; its groups assign them."""
        logs = self.topics[topic].logs
        logs += [Log() for _ in range(partitions - len(logs))]
        for group in self.groups.values():
            group.balance()

    def group(self, name: str) -> Group:
        """Return a group; create it if it is missing."""
        return self.groups.setdefault(name, Group(name=name, broker=self))

    def log(self, place: Cursor) -> Log:
        """Return a partition's log."""
        return self.topics[place[0]].logs[place[1]]

    def append(self, record: Outgoing) -> None:
        """Write a record."""
        logs = self.topics[record.topic].logs
        number = (
            self.rng.randrange(len(logs))
            if record.key is None
            else partition_of(record.key, len(logs), record.salt)
        )
        logs[number].records.append(
            Stored(int(self.utc_s() * 1000), record.key, record.value, record.headers, self.turn())
        )
        for wake in self.readers.get(record.topic, ()):
            wake()

    def lose(self, place: Cursor) -> int:
        """Lose all records of a partition; return how many of them no group has committed past."""
        log = self.log(place)
        gone = [stored for stored in log.records[log.low :] if stored.lost is None]
        turn = self.turn()
        for stored in gone:
            stored.lost = turn
        log.low = log.end
        return len(gone)

    def evict(self, member: str) -> None:
        """Remove a member from its group without its knowledge."""
        for group in self.groups.values():
            if member in group.seen_s:
                group.leave(member)

    def members(self) -> Sequence[str]:
        """Return all members of all groups."""
        return [member for _, group in sorted(self.groups.items()) for member in group.seen_s]
