"""Reads topics of Kafka as a member of a consumer group.

This is the side that the event loop sees; the work is done on the reader's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import Commits
from docllm.agent.consumer.kafka.liveness import Liveness
from docllm.agent.consumer.kafka.reader import KafkaReader
from docllm.agent.consumer.kafka.rebalance import Rebalance
from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.kafka.topic_watch import TopicWatch
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import AtRest, Event, Partition, Revoked, TopicAdmin
from docllm.schemas.clients.kafka import consumer_settings, outage_of
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig

T = TypeVar("T")

LEAVE_S = 5.0


class KafkaSource:
    """Source on Kafka.

    `topic_ids` knows the ids that `topics apply` stored. Another thread reads it.
    """

    def __init__(
        self,
        *,
        config: KafkaConfig,
        topics: Sequence[str],
        group_id: str,
        topic_ids: StoredIdsReader,
        admin: TopicAdmin,
        clock: Clock,
        outage: Outage | None = None,
    ) -> None:
        self._config = config
        self._outage = outage or outage_of(config, clock)
        self._settings = consumer_settings(config, group_id)
        self._topics = topics
        self._topic_ids = topic_ids
        self._admin = admin
        self._clock = clock
        self._assignment = Assignment()
        self._commits = Commits(assignment=self._assignment, clock=clock)
        self._member: tuple[KafkaReader, ThreadBridge] | None = None
        self._gone = asyncio.Event()

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and begin to read. Raises ConfigError for settings the client refuses."""
        bridge = ThreadBridge(loop=asyncio.get_running_loop(), deliver=deliver)
        watch = TopicWatch(
            topics=self._topics,
            admin=self._admin,
            topic_ids=self._topic_ids,
            clock=self._clock,
            bridge=bridge,
        )
        rebalance = Rebalance(
            assignment=self._assignment,
            commits=self._commits,
            watch=watch,
            bridge=bridge,
            clock=self._clock,
        )
        reader = KafkaReader(
            config=self._config,
            settings=self._settings,
            assignment=self._assignment,
            commits=self._commits,
            rebalance=rebalance,
            watch=watch,
            liveness=Liveness(topic=self._topics[0], clock=self._clock, outage=self._outage),
            bridge=bridge,
            outage=self._outage,
        )
        reader.start(self._gone.set)
        self._member = reader, bridge

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let the watermark be committed: within a second, on revoke and on leave."""
        self._commits.mark(partition, watermark)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of partitions that must not be read.

        The set also applies when these partitions are assigned again later.
        """
        if self._member is not None:
            self._member[0].pause(
                frozenset((partition.topic, partition.number) for partition in partitions)
            )

    async def commit(self) -> None:
        """Commit the marked offsets now; return when the brokers have answered or it has failed."""
        await self._ask(self._commit)

    async def at_rest(self) -> AtRest:
        """Return how far the assigned partitions are from their ends.

        The answer is "not joined" before the start and after the end.
        """
        answer = await self._ask(self._at_rest)
        return answer or AtRest(joined=False, lag=0)

    def lag(self) -> Mapping[str, int]:
        """Return how many records are above the committed offsets; let the thread count again.

        The ends of partitions are those that the client saw when it fetched last.
        """
        if self._member is not None:
            self._member[0].tell(self._assignment.count_lag)
        return self._assignment.last_lag

    async def leave(self) -> None:
        """Commit the marked offsets, leave the group, deliver Revoked, close the handle.

        The client closes only when the brokers answer. If they do not, this returns all the same,
        and the group learns of the departure when the session expires.
        """
        if self._member is None:
            return
        reader, bridge = self._member
        reader.leave()
        await self._until_done_or_gone(self._clock.sleep(LEAVE_S))
        unrevoked = tuple(self._assignment.live().values())
        bridge.end(Revoked(unrevoked, lost=True) if unrevoked and not self._gone.is_set() else None)
        self._gone.set()

    def _commit(self, _: Consumer, done: Callable[[None], None]) -> None:
        self._commits.request(lambda: done(None))

    def _at_rest(self, consumer: Consumer, done: Callable[[AtRest], None]) -> None:
        done(AtRest(self._assignment.joined, self._assignment.lag(consumer)))

    async def _ask(self, question: Callable[[Consumer, Callable[[T], None]], None]) -> T | None:
        """Let the thread answer; return None when it does not run or ends first."""
        if self._member is None:
            return None
        reader, bridge = self._member
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        reader.tell(
            lambda consumer: question(
                consumer, lambda value: bridge.call(lambda: _answer(answer, value))
            )
        )
        await self._until_done_or_gone(answer)
        return answer.result() if answer.done() and not answer.cancelled() else None

    async def _until_done_or_gone(self, wait: Awaitable[Any]) -> None:
        """Wait for something, but no longer than the thread lives."""
        waits = {asyncio.ensure_future(wait), asyncio.ensure_future(self._gone.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()


def _answer(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)
