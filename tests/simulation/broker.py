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

Place = tuple[str, int]
SESSION_S = 10.0


@dataclass(slots=True)
class Stored:
    """One record. `lost`: the broker has lost it, by a fault."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    lost: bool = False


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
    """One consumer group."""

    def __init__(self, *, name: str, broker: "Broker") -> None:
        self.name = name
        self.broker = broker
        self.seen_s: dict[str, float] = {}
        self.topics: dict[str, str] = {}
        self.owner: dict[Place, str] = {}
        self.heir: dict[Place, str] = {}
        self.committed: dict[Place, int] = {}
        self._names = count(1)

    def join(self, topic: str, now_s: float) -> str:
        """Return the name of a new member."""
        member = f"{self.name}-{next(self._names)}"
        self.seen_s[member], self.topics[member] = now_s, topic
        self.balance()
        return member

    def leave(self, member: str) -> None:
        """Forget a member, whether it knows or not."""
        self.seen_s.pop(member, None)
        self.topics.pop(member, None)
        self.owner = {place: owner for place, owner in self.owner.items() if owner != member}
        self.balance()

    def evict_silent(self, now_s: float) -> None:
        """Forget members that have not beaten for a session."""
        for member in [member for member, seen_s in self.seen_s.items() if now_s - seen_s > SESSION_S]:
            self.leave(member)

    def balance(self) -> None:
        """Decide anew who shall have what, moving little."""
        places = self._places()
        shares = [Share(index, place[0], self.heir.get(place)) for index, place in enumerate(places)]
        heirs = balance(shares, {member: {topic} for member, topic in self.topics.items()})
        self.heir = {places[index]: heir for index, heir in heirs.items() if heir is not None}

    def shuffle(self, rng: random.Random) -> None:
        """Decide anew by chance, as a rebalance at a bad moment would."""
        members = sorted(self.topics)
        if members:
            self.heir = {place: rng.choice(members) for place in self._places()}

    def commit(self, place: Place, offset: int) -> None:
        """Take a commit."""
        self.broker.on_commit(self, place, offset)
        self.committed[place] = offset

    def start(self, place: Place) -> tuple[int, bool]:
        """Return where a new owner reads on, and whether the committed offset was out of range."""
        log, offset = self.broker.log(place), self.committed.get(place)
        if offset is not None and log.low <= offset <= log.end:
            return offset, False
        return log.low, offset is not None or log.low > 0

    def lag(self) -> int:
        """Return how many records are not committed past."""
        return sum(self.broker.log(place).end - self.start(place)[0] for place in self._places())

    def _places(self) -> list[Place]:
        topics = sorted(set(self.topics.values()))
        return [(topic, number) for topic in topics for number in range(len(self.broker.topics[topic].logs))]


class Broker:
    """All topics and groups of one run."""

    def __init__(self, *, rng: random.Random, now_s: Callable[[], float], utc_s: Callable[[], float]) -> None:
        self.rng = rng
        self.now_s = now_s
        self.utc_s = utc_s
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.readers: dict[str, list[Callable[[], None]]] = {}  # to be woken when something is written, by topic
        self.on_commit: Callable[[Group, Place, int], None] = lambda _group, _place, _offset: None
        self.epochs = count(1)
        self._ids = count(1)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        self.topics[topic] = Topic(f"id-{next(self._ids)}", [Log() for _ in range(partitions)])

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
        logs[number].records.append(Stored(int(self.utc_s() * 1000), record.key, record.value, record.headers))
        for wake in self.readers.get(record.topic, ()):
            wake()

    def lose(self, place: Place) -> int:
        """Lose all records of a partition; return how many nobody has committed past."""
        log = self.log(place)
        gone = [stored for stored in log.records[log.low :] if not stored.lost]
        for stored in gone:
            stored.lost = True
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
