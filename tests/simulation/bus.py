"""A consumer handle over the broker in memory, as awkward as real ones.

Commits fail, records come again, and evicted members live on.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass

from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import (
    Assigned,
    AtRest,
    Event,
    Partition,
    Record,
    Recreated,
    Revoked,
    SourceFailed,
)
from docllm.schemas.runtime.clock import Clock
from tests.simulation.broker import Broker, Cursor
from tests.simulation.weather import Weather

_PASS_S, _SOON_S = 0.5, 0.02  # a handle polls now and then, and soon after a write
_COMMIT_S = 0.9
_BATCH = 20


@dataclass(slots=True)
class Holding:
    """A partition as its reader sees it."""

    partition: Partition
    position: int
    mark: int
    committed: int


class SimSource:
    """One member of a consumer group; it reads the topics whose ids are the known ones."""

    def __init__(
        self,
        *,
        broker: Broker,
        topics: Sequence[str],
        group_id: str,
        topic_ids: StoredIdsReader,
        clock: Clock,
        weather: Weather,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._group = broker.group(group_id)
        self._topic_ids = topic_ids
        self._clock = clock
        self._weather = weather
        self.member = ""
        self._held: dict[Cursor, Holding] = {}
        self._paused: frozenset[Cursor] = frozenset()
        self._events: deque[Event] = deque()
        self._committed_s = 0.0
        self._strange: set[str] = set()
        self._left = False
        self.deaf_until_s = 0.0  # until then it does not notice an eviction
        self.is_heard = False  # though evicted: no promise may depend on the group's own fences

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and start to read."""
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # the context of its own program, because others wake it
        for topic in self._topics:
            self._broker.readers.setdefault(topic, []).append(self._wake)
        self._pass_at(self._weather.delay_s("broker", _SOON_S))

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let `watermark` be committed; marks of an old epoch are void, and marks never go back."""
        held = self._held.get((partition.topic, partition.number))
        if held is not None and held.partition == partition:
            held.mark = max(held.mark, watermark)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of paused partitions."""
        self._paused = frozenset((partition.topic, partition.number) for partition in partitions)

    async def commit(self) -> None:
        """Commit the marks now."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        self._commit(list(self._held))

    def lag(self) -> Mapping[str, int]:
        """Return how many records are above the watermarks, by topic."""
        lag: Counter[str] = Counter()
        for place, held in self._held.items():
            if place[0] in self._broker.topics:
                lag[place[0]] += self._broker.log(place).end - held.mark
        return lag

    async def at_rest(self) -> AtRest:
        """Return how far the assigned partitions are from their ends."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        lag = sum(
            self._broker.log(place).end - self._group.start(place)[0]
            for place in self._held
            if place[0] in self._broker.topics
        )
        return AtRest(joined=bool(self.member), lag=lag)

    async def leave(self) -> None:
        """Commit the marks, leave the group, deliver Revoked."""
        await self._clock.sleep(self._weather.delay_s("broker", 0.01))
        if not self._left:
            self._left = True
            for topic in self._topics:
                self._broker.readers[topic].remove(self._wake)
            self._passing.cancel()
            self._drop(list(self._held), lost=False)
            self._group.leave(self.member)
        while self._events:
            await self._clock.sleep(0.01)

    def _wake(self) -> None:
        """Wake the handle after a write to its topic, unless a pass is due soon anyway."""
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
        for name in self._topics:
            self._compare_topic(name)
        topics = frozenset(self._topics) - self._strange
        if self.member not in group.seen_s:
            self._drop(list(self._held), lost=True)
            self.member = group.join(topics, now_s)
        group.seen_s[self.member] = now_s
        group.subscribe(self.member, topics)
        self._drop(
            [place for place in self._held if group.owner.get(place) != self.member], lost=True
        )
        self._drop(
            [place for place in self._held if group.heir.get(place) != self.member], lost=False
        )
        self._take(
            [
                place
                for place, heir in group.heir.items()
                if heir == self.member and place not in group.owner
            ]
        )

    def _compare_topic(self, name: str) -> None:
        """Stop reading a recreated or unknown topic until `topics apply` stores its id."""
        topic = self._broker.topics.get(name)
        held = [place for place in self._held if place[0] == name]
        ids = {self._held[place].partition.topic_id for place in held}
        is_known = topic is not None and topic.topic_id == self._topic_ids.current().get(name)
        strange = name in self._strange
        if not strange and (topic is None or not is_known or ids - {topic.topic_id}):
            strange = True
            self._strange.add(name)
            self._drop(held, lost=True)
            self._post(Recreated(name, known=False))
        if strange and is_known:
            self._strange.remove(name)
            self._post(Recreated(name, known=True))

    def _take(self, places: Sequence[Cursor]) -> None:
        taken = []
        for place in places:
            self._group.take(place, self.member)
            position, rewound = self._group.start(place)
            partition = Partition(
                place[0],
                self._broker.topics[place[0]].topic_id,
                place[1],
                next(self._broker.epochs),
            )
            self._held[place] = Holding(partition, position, position, position)
            taken.append(partition)
            if rewound:
                self._post(SourceFailed(f"{place}: out of range", rewound=True))
        if taken:
            self._post(Assigned(tuple(taken)))

    def _drop(self, places: Sequence[Cursor], *, lost: bool) -> None:
        if not lost:
            self._commit(places)
        gone = tuple(self._held.pop(place).partition for place in places)
        for partition in gone:
            place = (partition.topic, partition.number)
            if self._group.owner.get(place) == self.member:
                del self._group.owner[place]
        if gone:
            self._post(Revoked(gone, lost=lost))

    def _commit(self, places: Sequence[Cursor]) -> None:
        for place in places:
            held = self._held[place]
            topic = self._broker.topics.get(place[0])
            if topic is None or topic.topic_id != held.partition.topic_id:
                continue  # the offset belongs to records that no longer exist
            is_owner = self._group.owner.get(place) == self.member or self._is_heard_above(
                self._group.committed.get(place, 0), held.mark
            )
            if (
                held.mark > held.committed
                and is_owner
                and not self._weather.strikes("commit_fails")
            ):
                self._group.commit(place, held.mark, self.member)
                if not self._weather.strikes("commit_unheard"):
                    held.committed = held.mark

    def _is_heard_above(self, committed: int, mark: int) -> bool:
        """Return whether a non-member's commit counts, where it is dangerous.

        That is above the committed offset. Nobody would correct a commit below the owner's.
        """
        return mark > committed and (
            self.is_heard or self._weather.chances.get("zombie_commits", 0) > 0
        )

    # ---- records

    def _read(self) -> None:
        if self._events:
            return
        for place, held in list(self._held.items()):
            topic = self._broker.topics.get(place[0])
            if (
                topic is None
                or topic.topic_id != held.partition.topic_id
                or place in self._paused
                or self._weather.strikes("read_skipped")
            ):
                continue
            log = topic.logs[place[1]]
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
        return Record(
            partition, offset, stored.timestamp_ms, stored.key, stored.value, stored.headers
        )

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        event = self._events.popleft()
        if isinstance(event, Revoked):
            self._broker.on_revoked()
        self._deliver(event)
