"""The ports of the bus over the broker in memory, with the real ones' awkwardness: late and lost reports, failing commits, zombies."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass

from agent.ports import Assigned, AtRest, Event, Partition, Record, Revoked, SourceFailed
from producer.ports import Backlog, Refusal, TopicState
from schemas.clock import Clock
from schemas.envelope import Outgoing
from tests.simulation.broker import Broker, Place
from tests.simulation.weather import Weather

_PASS_S, _SOON_S = 0.5, 0.02  # a handle polls now and then, and soon after something was written
_COMMIT_S = 0.9
_BATCH = 20
_DELIVERY_S = 20.0


@dataclass(slots=True)
class Holding:
    """A partition as its reader sees it."""

    partition: Partition
    position: int
    mark: int
    committed: int


class SimSource:
    """One member of a consumer group."""

    def __init__(self, *, broker: Broker, topic: str, group_id: str, clock: Clock, weather: Weather) -> None:
        self._broker = broker
        self._topic = topic
        self._group = broker.group(group_id)
        self._clock = clock
        self._weather = weather
        self.member = ""
        self._held: dict[Place, Holding] = {}
        self._paused: frozenset[Partition] = frozenset()
        self._events: deque[Event] = deque()
        self._committed_s = 0.0
        self._left = False
        self.deaf_until_s = 0.0  # until then it does not hear that it was evicted

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and begin to read."""
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # that of its own program: others wake it
        self._broker.readers.setdefault(self._topic, []).append(self._wake)
        self._pass_at(self._weather.delay_s("broker", _SOON_S))

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let `watermark` be committed; a mark of an old epoch is void, and marks never go back."""
        held = self._held.get((partition.topic, partition.number))
        if held is not None and held.partition == partition:
            held.mark = max(held.mark, watermark)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of partitions that shall not be read."""
        self._paused = frozenset(partitions)

    async def commit(self) -> None:
        """Commit now what was marked."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        self._commit(list(self._held))

    async def at_rest(self) -> AtRest:
        """Return how far the assigned partitions are from their ends."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        lag = sum(self._broker.log(place).end - self._group.start(place)[0] for place in self._held)
        return AtRest(joined=bool(self.member), lag=lag)

    async def leave(self) -> None:
        """Commit what was marked, leave the group, deliver Revoked."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        if not self._left:
            self._left = True
            self._broker.readers[self._topic].remove(self._wake)
            self._passing.cancel()
            self._drop(list(self._held), lost=False)
            self._group.leave(self.member)
        while self._events:
            await self._clock.sleep(0.01)

    def _wake(self) -> None:
        """A record was written to the topic; that soon is soon enough while a pass is due."""
        if self._passing.when() > self._clock.now_s() + _SOON_S:
            self._passing.cancel()
            self._pass_at(self._weather.delay_s("broker", _SOON_S))

    def _pass_at(self, delay_s: float) -> None:
        self._passing = self._loop.call_later(delay_s, self._pass_on, context=self._context)

    def _pass_on(self) -> None:
        now_s = self._clock.now_s()
        if not self._weather.away_s("broker", now_s):
            if now_s >= self.deaf_until_s:
                self._turn(now_s)
            if now_s - self._committed_s >= _COMMIT_S:
                self._committed_s = now_s
                self._commit(list(self._held))
        self._read()
        self._pass_at(self._weather.delay_s("broker", _PASS_S))

    # ---- the group

    def _turn(self, now_s: float) -> None:
        group = self._group
        group.evict_silent(now_s)
        if self.member not in group.seen_s:
            self._drop(list(self._held), lost=True)
            self.member = group.join(self._topic, now_s)
        group.seen_s[self.member] = now_s
        self._drop([place for place in self._held if group.owner.get(place) != self.member], lost=True)
        self._drop([place for place in self._held if group.heir.get(place) != self.member], lost=False)
        self._take([place for place, heir in group.heir.items() if heir == self.member and place not in group.owner])

    def _take(self, places: Sequence[Place]) -> None:
        taken = []
        for place in places:
            self._group.owner[place] = self.member
            position, rewound = self._group.start(place)
            partition = Partition(place[0], self._broker.topics[place[0]].topic_id, place[1], next(self._broker.epochs))
            self._held[place] = Holding(partition, position, position, position)
            taken.append(partition)
            if rewound:
                self._post(SourceFailed(f"{place}: out of range", rewound=True))
        if taken:
            self._post(Assigned(tuple(taken)))

    def _drop(self, places: Sequence[Place], *, lost: bool) -> None:
        if not lost:
            self._commit(places)
        gone = tuple(self._held.pop(place).partition for place in places)
        for partition in gone:
            place = (partition.topic, partition.number)
            if self._group.owner.get(place) == self.member:
                del self._group.owner[place]
        if gone:
            self._post(Revoked(gone, lost=lost))

    def _commit(self, places: Sequence[Place]) -> None:
        for place in places:
            held = self._held[place]
            mine = self._group.owner.get(place) == self.member or self._weather.chances.get("zombie_commits", 0) > 0
            if held.mark > held.committed and mine and not self._weather.strikes("commit_fails"):
                self._group.commit(place, held.mark)
                if not self._weather.strikes("commit_unheard"):
                    held.committed = held.mark

    # ---- records

    def _read(self) -> None:
        if self._events:
            return
        for place, held in list(self._held.items()):
            log = self._broker.log(place)
            if held.partition in self._paused or self._weather.strikes("read_skipped"):
                continue
            if held.position < log.low:
                held.position = log.low
                self._post(SourceFailed(f"{place}: out of range", rewound=True))
            if self._weather.strikes("read_again"):
                held.position = max(log.low, held.committed)
            until = min(log.end, held.position + 1 + self._weather.rng.randrange(_BATCH))
            batch = [self._record(held.partition, offset) for offset in range(held.position, until)]
            if batch:
                held.position = until
                self._post(batch)

    def _record(self, partition: Partition, offset: int) -> Record:
        stored = self._broker.log((partition.topic, partition.number)).records[offset]
        return Record(partition, offset, stored.timestamp_ms, stored.key, stored.value, stored.headers)

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._deliver(self._events.popleft())


class SimPublisher:
    """Writes to the broker; its reports may be late, lost or wrong about what was not delivered."""

    def __init__(self, *, broker: Broker, clock: Clock, weather: Weather) -> None:
        self._broker = broker
        self._clock = clock
        self._weather = weather
        self._waiting = 0

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record, None when it is durable or why it is not known to be."""
        self._waiting += len(records)
        try:
            await self._clock.sleep(min(_DELIVERY_S / 2, self._weather.delay_s("publish", 0.01)))
            away_s = self._weather.away_s("broker", self._clock.now_s())
            if away_s > _DELIVERY_S / 2:
                await self._clock.sleep(_DELIVERY_S / 2)
                return [Refusal("timed out", permanent=False)] * len(records)
            await self._clock.sleep(away_s)
            answers = [self._one(record) for record in records]
            await self._clock.sleep(min(_DELIVERY_S / 2, self._weather.delay_s("publish", 0.01)))
            return answers
        finally:
            self._waiting -= len(records)

    def _one(self, record: Outgoing) -> Refusal | None:
        if self._weather.strikes("send_fails"):
            return Refusal("not sent", permanent=False)
        if record.value is not None and b"unpublishable" in record.value and record.topic.endswith(".dlq"):
            return Refusal("too large", permanent=True)
        self._broker.append(record)
        if self._weather.strikes("sent_twice"):
            self._broker.append(record)
        return Refusal("no report came", permanent=False) if self._weather.strikes("report_lost") else None

    def waiting(self) -> int:
        """Return how many records are in the local queue."""
        return self._waiting

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class SimTopicAdmin:
    """Topics, and the positions of groups on them."""

    def __init__(self, *, broker: Broker, clock: Clock, weather: Weather) -> None:
        self._broker = broker
        self._clock = clock
        self._weather = weather

    async def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return "cluster"

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the topics that exist."""
        await self._wait()
        there = {name: self._broker.topics[name] for name in topics if name in self._broker.topics}
        return {name: TopicState(topic.topic_id, len(topic.logs), {}) for name, topic in there.items()}

    async def create(self, topic: str, partitions: int, replication_factor: int | None) -> None:
        """Create a topic."""
        await self._wait()
        self._broker.create(topic, partitions)

    async def configure(self, topic: str) -> None:
        """Do nothing: there are no settings."""

    async def grow(self, topic: str, partitions: int) -> None:
        """Not simulated."""
        raise NotImplementedError

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return the position of a consumer group id."""
        await self._wait()
        group, lag, oldest = self._broker.group(group_id), 0, []
        places = [(name, number) for name in topics for number in range(len(self._broker.topics[name].logs))]
        for place in places:
            log, (start, _) = self._broker.log(place), group.start(place)
            lag += log.end - start
            if start < log.end:
                oldest.append(log.records[start].timestamp_ms)
        committed = {place: group.committed[place] for place in places if place in group.committed}
        return Backlog(lag, min(oldest, default=None), committed)

    async def trim(self, offsets: Mapping[Place, int]) -> None:
        """Delete the records below these offsets."""
        await self._wait()
        for place, offset in offsets.items():
            if offset < 0:
                raise ValueError(offset)
            log = self._broker.log(place)
            log.low = max(log.low, min(offset, log.end))

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _wait(self) -> None:
        await self._clock.sleep(self._weather.delay_s("broker", 0.01) + self._weather.away_s("broker", self._clock.now_s()))
