"""The thread that owns one consumer handle and replaces a handle that has failed.

It reads, commits and obeys commands. Every call of the client is made on this thread, because the
client serializes its calls: a call from another thread would wait for a poll to end. So a handle is
only passed as an argument, and no object keeps it. The client's callbacks run inside those calls
and never raise.
"""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import Commits
from docllm.agent.consumer.kafka.liveness import SILENCE_S, Liveness
from docllm.agent.consumer.kafka.positions import PartitionKey
from docllm.agent.consumer.kafka.rebalance import Rebalance
from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.kafka.topic_watch import TopicWatch
from docllm.agent.ports import Record, SourceFailed
from docllm.producer.bus.kafka.errors import ALL_DOWN, UNREACHABLE
from docllm.schemas.clients.kafka import Settings, refused_setting
from docllm.schemas.codes import Code
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig

log = logging.getLogger(__name__)

BATCH = 500
POLL_S = 0.1
AWAY_POLL_S = 0.5  # while no broker answers
REOPEN_S = 2.0
# How long a handle is served before it is closed: the minimum, and the maximum while it still has
# partitions.
LAST_POLLS = 3
MAX_LAST_POLLS = 30
# The client cannot unpack the batch, or the batch is damaged, and the client fetches it again
# forever. Whether to skip it is for a person to decide.
UNPACKABLE = {
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001 - librdkafka's own codes have an underscore
    KafkaError._BAD_MSG,  # noqa: SLF001
}
OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
PARTITION_END = KafkaError._PARTITION_EOF  # noqa: SLF001
Command = Callable[[Consumer], None]


@dataclass(kw_only=True, eq=False)
class KafkaReader:
    """One member of a consumer group, on one thread, until it is asked to leave."""

    config: KafkaConfig
    settings: Settings
    assignment: Assignment
    commits: Commits
    rebalance: Rebalance
    watch: TopicWatch
    liveness: Liveness
    bridge: ThreadBridge
    outage: Outage

    def __post_init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._broken = False
        # Errors that were reported: their codes, with the partition if one has its own report.
        self._reported: set[tuple[PartitionKey | None, int]] = set()

    def start(self, gone: Callable[[], None]) -> None:
        """Open the first handle and begin. Raises ConfigError.

        `gone` is called in the event loop at the end.
        """
        self._thread = threading.Thread(
            target=self._run, args=(self._open(), gone), name="kafka-consumer", daemon=True
        )
        self._thread.start()

    def tell(self, command: Command) -> None:
        """Let the thread run a command on its handle, after all earlier commands."""
        self._commands.put(command)

    def pause(self, keys: frozenset[PartitionKey]) -> None:
        """Stop reading these partitions, and read all others again."""
        self.tell(lambda consumer: self.rebalance.pause(consumer, keys))

    def leave(self) -> None:
        """Let the thread commit, leave the group and end."""
        self._leaving.set()

    # ---- the thread

    def _run(self, consumer: Consumer, gone: Callable[[], None]) -> None:
        try:
            self._serve(consumer)
            while not self._leaving.is_set():
                self._leaving.wait(REOPEN_S)
                self._serve(self._open())
        # After any error, the agent must be told that no records arrive any more.
        except Exception as error:
            log.exception("the consumer thread ends", extra={"code": Code.INTERNAL_ERROR})
            self.bridge.give(SourceFailed(f"the consumer ended: {error}", fatal=True))
        finally:
            self.watch.close()
            self.bridge.call(gone)

    def _serve(self, consumer: Consumer) -> None:
        """Use one handle until it is broken or the thread must leave."""
        self._broken = False
        self.liveness.begin()
        self._subscribe(consumer)
        while not self._broken and not self._leaving.is_set():
            self._step(consumer)
        self._close(consumer)
        self.rebalance.lose_all()
        self.commits.abandon()

    def _subscribe(self, consumer: Consumer) -> None:
        rebalance = self.rebalance
        consumer.subscribe(
            list(self.watch.topics),
            on_assign=rebalance.on_assign,
            on_revoke=rebalance.on_revoke,
            on_lost=rebalance.on_lost,
        )

    def _close(self, consumer: Consumer) -> None:
        """Leave the group, serve the client's remaining events, then close.

        No one takes an assignment that arrives while a handle closes, and the client's answer to it
        may wait forever, holding the interpreter's lock (librdkafka #4884). Records read here are
        delivered again to another member.
        """
        try:
            consumer.unsubscribe()
            for number in range(MAX_LAST_POLLS):
                if number >= LAST_POLLS and not consumer.assignment():
                    break
                consumer.consume(BATCH, POLL_S)
        except KafkaException as error:
            log.debug("not unsubscribed: %s", error)
        consumer.close()

    def _step(self, consumer: Consumer) -> None:
        self._run_commands(consumer)
        self.rebalance.step(consumer)
        self.commits.step(consumer)
        self._read(consumer)
        if self.liveness.has_stopped(consumer):
            log.debug("no broker has answered for %.0f s: a new consumer is opened", SILENCE_S)
            self._broken = True
        if self.rebalance.is_left_out():
            log.debug("no partition of a recreated topic was assigned: joining the group again")
            self._broken = True

    def _run_commands(self, consumer: Consumer) -> None:
        while not self._commands.empty():
            self._commands.get_nowait()(consumer)

    def _read(self, consumer: Consumer) -> None:
        max_messages, timeout_s = BATCH, AWAY_POLL_S if self.outage.logged else POLL_S
        if self.bridge.full:
            # The client must be polled even when the loop is behind; one record at a time is the
            # least that does so.
            self.bridge.wait_for_room(POLL_S)
            max_messages, timeout_s = 1, 0.0
        try:
            messages = consumer.consume(max_messages, timeout_s)
        except KafkaException as error:
            self._on_error(error.args[0])
            self._leaving.wait(POLL_S)
            return
        self._hand_over(messages)

    def _hand_over(self, messages: list[Message]) -> None:
        records = []
        for message in messages:
            if (error := message.error()) is not None:
                self._on_message_error(message, error)
            elif (record := self.assignment.record(message)) is not None:
                records.append(record)
                if self._reported:
                    self._forget_reports(record)
        if records:
            self.liveness.heard()
            self.bridge.give(records)

    def _forget_reports(self, record: Record) -> None:
        """Report errors again once records arrive; those of a partition once its own arrive."""
        read = {None, (record.partition.topic, record.partition.number)}
        self._reported = {report for report in self._reported if report[0] not in read}

    def _on_message_error(self, message: Message, error: KafkaError) -> None:
        topic, number = message.topic(), message.partition()
        is_placed = topic is not None and number is not None
        key = (topic or "", number or 0)
        if is_placed and error.code() == OUT_OF_RANGE:
            self.rebalance.out_of_range(key)
        elif is_placed and error.code() == PARTITION_END:
            self.liveness.heard()
            self.assignment.ended(key, message.offset() or 0)
        elif error.code() in UNPACKABLE:
            self._report_once(
                error,
                f"{topic}[{number}] is read no further until its group is moved past that, "
                "or the client can take it",
                key if is_placed else None,
            )
        else:
            self._on_error(error)

    # ---- the client

    def _open(self) -> Consumer:
        callbacks: dict[str, Any] = {
            "error_cb": self._on_error,
            "on_commit": self.commits.answered,
        }
        try:
            return Consumer({**self.settings, **callbacks}, logger=log)
        except KafkaException as error:
            raise refused_setting(self.config, str(error.args[0].str())) from None

    def _on_error(self, error: KafkaError) -> None:
        """Report each kind of trouble once; a fatal one ends the handle.

        An error that is read as a message carries its code only, not the fatal flag.
        """
        fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - its name
        self._broken = self._broken or fatal
        if error.code() in UNREACHABLE and not fatal:
            if error.code() != ALL_DOWN:
                self.outage.failed(error.str())
            return
        self._report_once(
            error, "a new consumer is opened" if fatal else "docllm continues by itself"
        )

    def _report_once(self, error: KafkaError, hope: str, key: PartitionKey | None = None) -> None:
        report = (key, error.code())
        if report not in self._reported:
            self._reported.add(report)
            self.bridge.give(SourceFailed(f"Kafka: {error.str()}; {hope}"))
