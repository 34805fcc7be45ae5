"""A broker in memory: topics, partitions, consumer groups. It keeps every record, so that checkers can look back.

A group is what the embedded bus has too: a partition has an owner, who reads it, and an heir, who shall. A living owner
releases first; one that was evicted loses at once, and may hear of it late.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from producer.bus.balance import Share, balance
from producer.bus.murmur2 import partition_of
from schemas.envelope import Outgoing
from tests.simulation.eventloop import Process

Place = tuple[str, int]
SESSION_S = 10.0


@dataclass(slots=True)
class Stored:
    """One record. `turn`: when it was written, among all events of the run. `lost`: when the broker lost it, by a fault."""

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
    """One consumer group. A member subscribes to one topic, or to none while it does not trust its id."""

    def __init__(self, *, name: str, broker: "Broker") -> None:
        self.name = name
        self.broker = broker
        self.seen_s: dict[str, float] = {}
        self.topics: dict[str, str | None] = {}
        self.owner: dict[Place, str] = {}
        self.heir: dict[Place, str] = {}
        self.committed: dict[Place, int] = {}
        self.foreign: set[Place] = set()  # committed by somebody who does not own them
        self._names = count(1)

    def join(self, topic: str | None, now_s: float) -> str:
        """Return the name of a new member."""
        member = f"{self.name}-{next(self._names)}"
        self.seen_s[member], self.topics[member] = now_s, topic
        self.balance()
        return member

    def subscribe(self, member: str, topic: str | None) -> None:
        """Change what a member reads."""
        if self.topics.get(member) != topic:
            self.topics[member] = topic
            self.balance()

    def leave(self, member: str) -> None:
        """Forget a member, whether it knows or not."""
        self.seen_s.pop(member, None)
        self.topics.pop(member, None)
        self.owner = {place: owner for place, owner in self.owner.items() if owner != member}
        self.balance()

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        for found in (self.owner, self.heir, self.committed):
            for place in [place for place in found if place[0] == topic]:
                del found[place]  # type: ignore[attr-defined]
        self.foreign = {place for place in self.foreign if place[0] != topic}

    def evict_silent(self, now_s: float) -> None:
        """Forget members that have not beaten for a session."""
        for member, seen_s in list(self.seen_s.items()):
            if now_s - seen_s > SESSION_S:
                self.leave(member)

    def balance(self) -> None:
        """Decide anew who shall read what."""
        places = self._places()
        shares = [Share(number, place[0], self.heir.get(place)) for number, place in enumerate(places)]
        heirs = balance(shares, {member: {topic} if topic else set() for member, topic in self.topics.items()})
        self.heir = {place: heir for number, place in enumerate(places) if (heir := heirs[number]) is not None}

    def shuffle(self, rng: random.Random) -> None:
        """Decide anew by chance, as a rebalance at a bad moment would."""
        members = sorted(member for member, topic in self.topics.items() if topic)
        if members:
            self.heir = {place: rng.choice(members) for place in self._places()}

    def take(self, place: Place, member: str) -> None:
        """Make a member the owner of a partition that has none."""
        self.owner[place] = member
        self.foreign.discard(place)

    def commit(self, place: Place, offset: int, member: str) -> None:
        """Take a commit."""
        self.broker.on_commit(self, place, offset)
        self.committed[place] = offset
        if self.owner.get(place) == member:
            self.foreign.discard(place)
        else:
            self.foreign.add(place)

    def ahead(self) -> int:
        """Return on how many partitions a stranger's commit is ahead of the owner, who has still to come there."""
        return sum(self.committed.get(place, 0) > self.broker.log(place).low for place in self.foreign)

    def start(self, place: Place) -> tuple[int, bool]:
        """Return where a new owner reads on, and whether records may be missing before it."""
        log, offset = self.broker.log(place), self.committed.get(place)
        if offset is not None and log.low <= offset <= log.end:
            return offset, False
        return log.low, offset is not None or log.low > 0

    def _places(self) -> list[Place]:
        topics = sorted({topic for topic in self.topics.values() if topic in self.broker.topics})
        return [(topic, number) for topic in topics for number in range(len(self.broker.topics[topic].logs))]


class Broker:
    """All topics and groups of one run. `turn` numbers what is written among all events of the run."""

    def __init__(self, *, rng: random.Random, utc_s: Callable[[], float], turn: Callable[[], int]) -> None:
        self.rng = rng
        self.utc_s = utc_s
        self.turn = turn
        self.topics: dict[str, Topic] = {}
        self.deleted: list[tuple[str, Topic]] = []
        self.groups: dict[str, Group] = {}
        self.readers: dict[str, list[Callable[[], None]]] = {}  # to be woken when something is written, by topic
        self.on_commit: Callable[[Group, Place, int], None] = lambda _group, _place, _offset: None
        self.epochs = count(1)
        self.sending: list[Process | None] = []  # who is about to write, once for each time
        self._ids = count(1)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic; groups that read one of its name share it out, also where no member has seen that it was gone."""
        self.topics[topic] = Topic(f"id-{next(self._ids)}", [Log() for _ in range(partitions)])
        for group in self.groups.values():
            group.balance()

    def delete(self, topic: str) -> None:
        """Delete a topic, with its records and offsets."""
        self.deleted.append((topic, self.topics.pop(topic)))
        for group in self.groups.values():
            group.forget_topic(topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic; its groups share them out."""
        logs = self.topics[topic].logs
        logs += [Log() for _ in range(partitions - len(logs))]
        for group in self.groups.values():
            group.balance()

    def group(self, name: str) -> Group:
        """Return a group, made if it is not there."""
        return self.groups.setdefault(name, Group(name=name, broker=self))

    def log(self, place: Place) -> Log:
        """Return a partition's log."""
        return self.topics[place[0]].logs[place[1]]

    def append(self, record: Outgoing) -> None:
        """Write a record."""
        logs = self.topics[record.topic].logs
        number = self.rng.randrange(len(logs)) if record.key is None else partition_of(record.key, len(logs))
        logs[number].records.append(Stored(int(self.utc_s() * 1000), record.key, record.value, record.headers, self.turn()))
        for wake in self.readers.get(record.topic, ()):
            wake()

    def lose(self, place: Place) -> int:
        """Lose all records of a partition; return how many nobody has committed past."""
        log = self.log(place)
        gone = [stored for stored in log.records[log.low :] if stored.lost is None]
        turn = self.turn()
        for stored in gone:
            stored.lost = turn
        log.low = log.end
        return len(gone)

    def evict(self, member: str) -> None:
        """Take a member out of its group without its knowledge."""
        for group in self.groups.values():
            if member in group.seen_s:
                group.leave(member)

    def members(self) -> Sequence[str]:
        """Return all members of all groups."""
        return [member for _, group in sorted(self.groups.items()) for member in group.seen_s]
