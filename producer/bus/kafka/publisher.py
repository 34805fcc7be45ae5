"""Publishes records on Kafka: one thread serves all callers, group after group.

This module knows bytes, nothing of tasks.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from docllm.producer.bus.kafka.errors import ALL_DOWN, UNREACHABLE
from docllm.producer.bus.murmur2 import partition_of
from docllm.producer.ports import Refusal
from docllm.schemas.clients.kafka import (
    MESSAGE_TIMEOUT_MS,
    outage_of,
    producer_settings,
    refused_setting,
)
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record.envelope import Outgoing

log = logging.getLogger(__name__)

# The longest wait before a record is sent. With the message timeout, it stays below the 20 s that a
# publish may take.
WAIT_S = 3.5
GROUP_RECORDS = 20_000
SERVE_S = 0.1
CLOSE_S = 10.0
SEND_S = MESSAGE_TIMEOUT_MS / 1000 + 1
POLL_S = 0.1
COUNT_S = 1.0  # the longest wait for a topic's number of partitions
BY_KEY = -1  # the client chooses the partition by the key
# Errors whose cause is the record itself.
PERMANENT = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError._INVALID_ARG,  # noqa: SLF001 - librdkafka's own codes are spelled with an underscore
}
# SystemError: the client reported a delivery after it had already raised an exception, which may be
# lost.
ENDED = (KafkaException, SystemError)
FailedRecords = dict[tuple[str | None, bytes | None, bytes | None], KafkaError]


class Sender:
    """One idempotent Kafka producer: sends a group of records and reports each record's result.

    Only failed records get a delivery report. A report for each success would acquire the
    interpreter's lock each time, which costs 0.1 to 0.3 ms if the event loop is busy. One thread
    uses the client, which is replaced after a fatal error. Such an error is raised by whichever
    call lets the client report (confluent-kafka 2.16); no callback hears of it.
    """

    def __init__(self, *, config: KafkaConfig, clock: Clock, outage: Outage) -> None:
        self._config = config
        self._clock = clock
        self._outage = outage
        self._settings = producer_settings(config)
        self._failures: FailedRecords = {}
        self._broken = False
        self._troubles: set[int] = set()  # kinds of trouble logged since the last delivery
        self._partitions: dict[str, int] = {}  # number of partitions by topic; 0 if unknown
        self._producer = self._open()

    def serve(self) -> None:
        """Let the client report its errors while nothing is sent."""
        try:
            self._producer.poll(0)
        except ENDED as error:
            self._note_fatal(error)

    def send(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return for each record None when it is durable, or why not.

        Returns at the latest when the message timeout has passed.
        """
        if self._broken:
            self._renew()
        end_s = self._clock.now_s() + SEND_S
        refusals = self._try_once(records, end_s)
        if len(records) > 1 and any(refusals):
            refusals = [
                self._retry_alone(record, refusal, end_s)
                for record, refusal in zip(records, refusals, strict=True)
            ]
        return refusals

    def close(self) -> None:
        """Wait for the records under way."""
        with suppress(*ENDED):
            self._producer.flush(SEND_S)

    def _try_once(self, records: Sequence[Outgoing], end_s: float) -> list[Refusal | None]:
        self._failures.clear()
        try:
            refusals = [self._produce(record, end_s) for record in records]
            self._flush(end_s)
        except ENDED as error:
            return not_sent(records, self._note_fatal(error))
        if not self._failures:
            self._troubles.clear()
            if records:
                self._outage.answered()
            return refusals
        return [
            refusal or self._reported(record)
            for record, refusal in zip(records, refusals, strict=True)
        ]

    def _retry_alone(
        self, record: Outgoing, refusal: Refusal | None, end_s: float
    ) -> Refusal | None:
        """Retry a refused record alone: a broker refuses a whole batch for one bad record."""
        if refusal is None or not refusal.permanent:
            return refusal
        if self._clock.now_s() > end_s:
            return Refusal(refusal.reason, permanent=False)
        return self._try_once([record], end_s)[0]

    def _produce(self, record: Outgoing, end_s: float) -> Refusal | None:
        # The client reads the pairs as they are, and its stubs ask for a wider type.
        headers = cast("list[tuple[str, str | bytes | None]]", record.headers)
        partition = self._partition(record) if record.salt else BY_KEY
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, partition, headers=headers
                )
            except BufferError:
                if self._clock.now_s() > end_s:
                    return Refusal("the local queue is full", permanent=False)
                self._producer.poll(POLL_S)
            except KafkaException as error:
                return self._refusal(error.args[0])
            else:
                return None

    def _partition(self, record: Outgoing) -> int:
        """Return the partition of a record with a salt."""
        if record.key is None:
            return BY_KEY
        if record.topic not in self._partitions:
            self._partitions[record.topic] = self._count_partitions(record.topic)
        count = self._partitions[record.topic]
        return partition_of(record.key, count, record.salt) if count else BY_KEY

    def _count_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, 0 if no broker says so in time."""
        try:
            metadata = self._producer.list_topics(topic, COUNT_S).topics.get(topic)
        except KafkaException:
            return 0
        return 0 if metadata is None else len(metadata.partitions)

    def _flush(self, end_s: float) -> None:
        if self._producer.flush(max(end_s - self._clock.now_s(), POLL_S)):
            # No record may leave the queue after its order went back to the relay.
            self._producer.purge()
            self._producer.flush(1.0)

    def _reported(self, record: Outgoing) -> Refusal | None:
        """Return why a record failed.

        Equal records all count as failed, which at worst sends one of them again.
        """
        self._partitions.pop(record.topic, None)  # a topic that was made again may have fewer
        error = self._failures.get((record.topic, record.key, record.value))
        return None if error is None else self._refusal(error)

    def _refusal(self, error: KafkaError) -> Refusal:
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001
            self._broken = True
        return Refusal(error.str(), permanent=error.code() in PERMANENT)

    # ---- the client

    def _open(self) -> Producer:
        callbacks = {"on_delivery": self._on_delivery, "error_cb": self._on_error}
        try:
            return Producer({**self._settings, **callbacks}, logger=log)
        except KafkaException as error:
            raise refused_setting(self._config, str(error.args[0].str())) from None

    def _renew(self) -> None:
        with suppress(*ENDED):
            self._producer.purge()
        self._producer, self._broken = self._open(), False

    def _note_fatal(self, error: Exception) -> str:
        """Note that the client is of no use any more, and return why."""
        self._broken = True
        cause = error.__cause__ or error
        explanation = cause if isinstance(cause, KafkaException) else "the client's log says which"
        reason = f"the producer had a fatal error and is opened anew: {explanation}"
        log.warning("%s", reason)
        return reason

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures[message.topic(), message.key(), message.value()] = error

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in UNREACHABLE:
            if error.code() != ALL_DOWN:
                self._outage.failed(error.str())
        elif error.code() not in self._troubles:
            self._troubles.add(error.code())
            log.warning("%s; docllm continues by itself", error.str())


def not_sent(records: Sequence[Outgoing], reason: str) -> list[Refusal | None]:
    """Return one refusal for each of the records, none of which was sent."""
    return [Refusal(reason, permanent=False)] * len(records)


@dataclass(slots=True)
class Parcel:
    """One call of `publish` and its result."""

    records: Sequence[Outgoing]
    asked_at_s: float
    done: "asyncio.Future[list[Refusal | None]]"
    answer: list[Refusal | None] = field(default_factory=list)

    def tell(self) -> None:
        """Answer the call, in its event loop's thread; a cancelled call no longer waits."""
        if not self.done.done():
            self.done.set_result(self.answer)


class KafkaPublisher:
    """Publisher on Kafka.

    Raises ConfigError for settings that break a promise or that the client refuses.
    """

    def __init__(self, *, config: KafkaConfig, clock: Clock, outage: Outage | None = None) -> None:
        self._clock = clock
        self._sender = Sender(config=config, clock=clock, outage=outage or outage_of(config, clock))
        self._parcels: list[Parcel] = []
        self._change = threading.Condition()
        self._waiting = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kafka-producer", daemon=True)
        self._thread.start()

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record in order, None when it is durable, or why it may not be."""
        if not records:
            return []
        parcel = Parcel(records, self._clock.now_s(), asyncio.get_running_loop().create_future())
        self._waiting += len(records)
        try:
            self._hand_in(parcel)
            return await parcel.done
        finally:
            self._waiting -= len(records)

    def waiting(self) -> int:
        """Return how many records are in the local queue."""
        return self._waiting

    async def close(self) -> None:
        """Send the records handed in so far, and close.

        Records that do not get through within CLOSE_S are left to the relay, because their orders
        stay.
        """
        with self._change:
            self._closing = True
            self._change.notify()
        await asyncio.to_thread(self._thread.join, CLOSE_S)

    def _hand_in(self, parcel: Parcel) -> None:
        with self._change:
            if self._closing:
                raise RuntimeError("publish after close")
            self._parcels.append(parcel)
            self._change.notify()

    # ---- the thread

    def _run(self) -> None:
        while parcels := self._next():
            self._send(parcels)
            for parcel in parcels:
                self._tell(parcel)
        self._sender.close()

    def _next(self) -> list[Parcel]:
        """Return the next group of parcels, or an empty list after `close`.

        While it waits, it lets the client report its errors.
        """
        while True:
            with self._change:
                if not self._parcels and not self._closing:
                    self._change.wait(SERVE_S)
                parcels = self._take()
                if parcels or self._closing:
                    return parcels
            self._sender.serve()

    def _take(self) -> list[Parcel]:
        """Take the next parcels: at most GROUP_RECORDS records, but at least one parcel."""
        sizes = itertools.accumulate(len(parcel.records) for parcel in self._parcels)
        fitting = sum(size <= GROUP_RECORDS for size in sizes)
        count = max(fitting, 1)
        parcels, self._parcels = self._parcels[:count], self._parcels[count:]
        return parcels

    def _send(self, parcels: list[Parcel]) -> None:
        now_s = self._clock.now_s()
        for parcel in parcels:
            parcel.answer = not_sent(
                parcel.records, "not sent, because the brokers did not answer the records before it"
            )
        fresh = [parcel for parcel in parcels if now_s - parcel.asked_at_s < WAIT_S]
        records = [record for parcel in fresh for record in parcel.records]
        try:
            refusals = self._sender.send(records)
        except Exception as error:  # every caller gets an answer, and the thread goes on
            log.exception("the producer failed", extra={"code": Code.INTERNAL_ERROR})
            refusals = not_sent(records, f"the producer failed: {error}")
        answers = iter(refusals)
        for parcel in fresh:
            parcel.answer = list(itertools.islice(answers, len(parcel.records)))

    def _tell(self, parcel: Parcel) -> None:
        try:
            parcel.done.get_loop().call_soon_threadsafe(parcel.tell)
        except RuntimeError:
            log.warning("a publish of %d records lost its event loop", len(parcel.records))
