"""Topics of Kafka and the positions of groups on them.

Reads records only to learn their timestamps; joins no group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from docllm.producer.bus.kafka.admin_client import RenewedAdmin
from docllm.producer.bus.kafka.errors import LED_ELSEWHERE, REFUSED, UNREACHABLE
from docllm.producer.bus.kafka.peek import Peek
from docllm.producer.bus.topic_family import COMPRESSION, TOPIC_SETTINGS, settings_of
from docllm.producer.ports import Backlog, TopicState
from docllm.schemas.clients.kafka import (
    admin_settings,
    outage_of,
    refused_setting,
    refusing,
    unreachable,
)
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig

T = TypeVar("T")
PartitionKey = tuple[str, int]

REQUEST_S = 10.0
CHECK_EVERY_S = 0.05  # between two checks for the leaders of new partitions
MOVED_S = 0.5  # pause before a request is repeated after its leader or coordinator has moved
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART
# Parts of a controller's error text about brokers that are not registered yet or are considered
# lost.
FENCED = "currently fenced"


class LedElsewhereError(UnreachableError):
    """The broker that was asked does not lead the group or partition, or not yet."""


class KafkaTopicAdmin:
    """TopicAdmin on Kafka."""

    def __init__(self, *, config: KafkaConfig, clock: Clock, outage: Outage | None = None) -> None:
        self._config = config
        self._clock = clock
        self._outage = outage or outage_of(config, clock)
        self._last_error, self._is_refused = "", False
        self._settings = admin_settings(config)
        self._renewal = RenewedAdmin(opened=self._open_client, clock=clock)
        self._peek = Peek(settings=self._settings, clock=clock)

    async def cluster_id(self) -> str:
        """Return the id of the cluster. Raises UnreachableError."""
        return await self._from_peek(self._peek.cluster_id())

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the state of each given topic that exists. Raises UnreachableError.

        Settings that a broker hides are missing in the state.
        """
        described = await self._descriptions(topics)
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in described]
        configs = (
            self._client.describe_configs(resources, request_timeout=REQUEST_S) if resources else {}
        )
        answers = {
            resource.name: await self._unless_missing(future)
            for resource, future in configs.items()
        }
        settings = {
            name: _revealed_settings(answer)
            for name, answer in answers.items()
            if answer is not None
        }
        return {
            name: TopicState(
                str(described[name].topic_id), len(described[name].partitions), topic_settings
            )
            for name, topic_settings in settings.items()
        }

    async def create(self, topic: str, partitions: int, replication_factor: int | None) -> None:
        """Create a topic with the settings of docllm.

        If a service chooses the codec of every topic, its choice is kept. Raises UnsafeStateError
        when the topic exists, UnreachableError.
        """
        settings = settings_of(topic)
        try:
            await self._create(topic, partitions, replication_factor, settings)
        except UnsafeStateError:
            if settings == TOPIC_SETTINGS:
                raise
            await self._create(topic, partitions, replication_factor, TOPIC_SETTINGS)
        await self._wait_until_served(topic, partitions)

    async def _create(
        self, topic: str, partitions: int, replication_factor: int | None, settings: dict[str, str]
    ) -> None:
        topic_to_create = NewTopic(topic, partitions, replication_factor or -1, config=settings)
        await self._change(
            self._client.create_topics(
                [topic_to_create], request_timeout=REQUEST_S, operation_timeout=REQUEST_S
            ),
            f"create {topic}",
        )

    async def configure(self, topic: str) -> None:
        """Set the settings of an existing topic to those that `create` gives."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings_of(topic).items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        await self._change(
            self._client.incremental_alter_configs([resource], request_timeout=REQUEST_S),
            f"configure {topic}",
        )

    async def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions.

        Raises UnsafeStateError when the topic has as many or more, UnreachableError.
        """
        futures = self._client.create_partitions(
            [NewPartitions(topic, partitions)],
            request_timeout=REQUEST_S,
            operation_timeout=REQUEST_S,
        )
        await self._change(futures, f"raise the partitions of {topic}")
        await self._wait_until_served(topic, partitions)

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return a consumer group's position on the topics that exist. Raises UnreachableError."""
        partitions = await self._partitions(topics)
        committed = await self._when_led(
            lambda: self._from_peek(self._peek.committed(group_id, partitions))
        )
        lows = await self._offsets(partitions, EARLIEST)
        highs = await self._offsets(partitions, LATEST)
        starts = {key: max(committed.get(key, 0), low) for key, low in lows.items() if key in highs}
        behind = {key: start for key, start in starts.items() if start < highs[key]}
        oldest_ms = await self._from_peek(self._peek.oldest_ms(behind))
        return Backlog(
            sum(highs[key] - start for key, start in behind.items()), oldest_ms, committed
        )

    async def trim(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Delete the records below these offsets.

        Raises ValueError for a negative offset, because Kafka reads -1 as "everything".
        """
        negative = [key for key, offset in offsets.items() if offset < 0]
        if negative:
            raise ValueError(f"negative offset for {negative[0]}")
        if not offsets:
            return
        positions = [
            TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()
        ]
        futures = self._client.delete_records(
            positions, request_timeout=REQUEST_S, operation_timeout=REQUEST_S
        )
        await self._change(futures, "delete records")

    async def close(self) -> None:
        """Do nothing: the client closes its connections when it is garbage-collected."""

    # ---- the client

    @property
    def _client(self) -> AdminClient:
        return self._renewal.client

    def _open_client(self) -> AdminClient:
        callbacks: dict[str, Any] = {"error_cb": self._on_error}
        try:
            return AdminClient({**self._settings, **callbacks})
        except KafkaException as error:
            raise refused_setting(self._config, str(error.args[0].str())) from None

    # ---- answers

    async def _descriptions(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return what the brokers say of each given topic that exists."""
        if not topics:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_S
        )
        return {
            name: description
            for name, future in futures.items()
            if (description := await self._unless_missing(future)) is not None
        }

    async def _partitions(self, topics: Sequence[str]) -> list[PartitionKey]:
        return [
            (name, partition.id)
            for name, described in (await self._descriptions(topics)).items()
            for partition in described.partitions
        ]

    async def _offsets(
        self, partitions: Iterable[PartitionKey], spec: OffsetSpec
    ) -> dict[PartitionKey, int]:
        return await self._when_led(lambda: self._offsets_now(partitions, spec))

    async def _when_led(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat the request while its leader or coordinator moves or is not ready."""
        end_s = self._clock.now_s() + REQUEST_S
        while True:
            try:
                return await ask()
            except LedElsewhereError:
                if self._clock.now_s() > end_s:
                    raise
            await self._clock.sleep(MOVED_S)

    async def _offsets_now(
        self, partitions: Iterable[PartitionKey], spec: OffsetSpec
    ) -> dict[PartitionKey, int]:
        futures = self._client.list_offsets(
            {TopicPartition(*key): spec for key in partitions}, request_timeout=REQUEST_S
        )
        answers = {
            (partition.topic, partition.partition): await self._unless_missing(future)
            for partition, future in futures.items()
        }
        return {key: answer.offset for key, answer in answers.items() if answer is not None}

    async def _wait_until_served(self, topic: str, partitions: int) -> None:
        """Wait until every partition has a leader that answers; brokers lag behind a controller."""
        end_s = self._clock.now_s() + REQUEST_S
        while self._clock.now_s() < end_s:
            with suppress(UnreachableError):
                ends = await self._offsets_now(await self._partitions([topic]), LATEST)
                if len(ends) >= partitions:
                    return
            await self._clock.sleep(CHECK_EVERY_S)
        raise unreachable(
            self._config,
            f"the {partitions} partitions of {topic} are created, "
            "but not all of them are served yet",
        )

    async def _change(self, futures: Mapping[Any, "Future[Any]"], doing: str) -> None:
        for future in futures.values():
            try:
                await self._answer(future)
            except KafkaException as error:
                raise UnsafeStateError(
                    f"Kafka refused to {doing}: {error.args[0].str()}"
                ) from error

    async def _unless_missing(self, future: "Future[T]") -> T | None:
        """Return an answer; None if the topic does not exist."""
        try:
            return await self._answer(future)
        except KafkaException as error:
            if error.args[0].code() == MISSING:
                return None
            raise refusing(self._config, error.args[0].str()) from error

    async def _answer(self, future: "Future[T]") -> T:
        # The client returns futures that run already: a caller that gives up cannot cancel one
        # under the client's thread, which would then fail to set it.
        try:
            answer = await asyncio.wrap_future(future)
        except KafkaException as error:
            outage = self._outage_error(error)
            if outage is None or isinstance(outage, LedElsewhereError):
                self._renewal.answered()
            else:
                self._renewal.unanswered()
            raise outage or error from None
        self._renewal.answered()
        self._outage.answered()
        return answer

    async def _from_peek(self, peek: Awaitable[T]) -> T:
        try:
            answer = await peek
        except KafkaException as error:
            raise self._outage_error(error) or refusing(self._config, error.args[0].str()) from None
        except TimeoutError as error:
            self._outage.failed(error)
            raise unreachable(self._config, str(error)) from None
        self._outage.answered()
        return answer

    def _outage_error(self, error: KafkaException) -> UnreachableError | None:
        """Return the error for an unreachable broker, or None if the cause is another."""
        self._client.poll(0)
        code, reason = error.args[0].code(), error.args[0].str()
        if code in LED_ELSEWHERE:
            return LedElsewhereError(str(unreachable(self._config, reason)))
        if code == KafkaError.INVALID_REPLICATION_FACTOR and FENCED in reason:
            return unreachable(self._config, reason)
        if code not in UNREACHABLE:
            return None
        self._outage.failed(self._last_error or reason)
        return unreachable(self._config, self._last_error or reason, may_pass=not self._is_refused)

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" only sums up the earlier error of each broker, which helps more.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:  # noqa: SLF001
            self._last_error, self._is_refused = error.str(), error.code() in REFUSED


def _revealed_settings(answer: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the settings that a broker reveals.

    Some services leave out the settings that they set themselves, or their values.
    """
    return {
        key: str(answer[key].value)
        for key in (*TOPIC_SETTINGS, COMPRESSION)
        if key in answer and answer[key].value is not None
    }
