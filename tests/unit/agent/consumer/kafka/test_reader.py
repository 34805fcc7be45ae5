"""How the consumer thread leaves: first the group, then the handle; and errors that end it."""

import threading
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import Commits
from docllm.agent.consumer.kafka.liveness import Liveness
from docllm.agent.consumer.kafka.reader import LAST_POLLS, MAX_LAST_POLLS, KafkaReader
from docllm.agent.consumer.kafka.rebalance import Rebalance
from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.kafka.topic_watch import TopicWatch
from docllm.agent.ports import Partition, Record, SourceFailed
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig


class Client(Consumer):
    """A consumer handle that records its calls.

    `held` is the number of polls after which the group has taken everything back.
    """

    def __init__(self, held: int) -> None:  # the library's own needs a broker
        self.asked: list[str] = []
        self.threads: set[str] = set()
        self._held = held

    def subscribe(self, *_: object, **__: object) -> None:
        self.asked.append("subscribe")

    def unsubscribe(self) -> None:
        self.asked.append("unsubscribe")

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("g.tasks")] * (self.asked.count("poll") < self._held)

    def consume(self, num_messages: int = 1, timeout: float = 0.0) -> "list[Message[bytes, bytes]]":
        self.asked.append("poll")
        self.threads.add(threading.current_thread().name)
        return []

    def close(self) -> None:
        self.asked.append("close")


def idle_reader(*, stopped: bool = False) -> Any:
    """Return a reader whose other parts do nothing.

    `stopped` means that its handle no longer reaches a broker.
    """
    liveness = create_autospec(Liveness, instance=True)
    liveness.has_stopped.return_value = stopped
    return KafkaReader(
        config=KafkaConfig("b:9092"),
        settings={},
        assignment=create_autospec(Assignment, instance=True),
        commits=create_autospec(Commits, instance=True),
        rebalance=create_autospec(Rebalance, instance=True),
        watch=create_autospec(TopicWatch, instance=True, topics=("g.tasks",)),
        liveness=liveness,
        bridge=create_autospec(ThreadBridge, instance=True),
        outage=create_autospec(Outage, instance=True),
    )


def test_a_command_reaches_the_handle_on_the_thread_that_polls_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread never calls the client: it gives the handle's own thread a command."""
    reader, client, ran = idle_reader(), Client(held=0), threading.Event()
    monkeypatch.setattr("docllm.agent.consumer.kafka.reader.Consumer", lambda *_, **__: client)

    def command(handle: Consumer) -> None:
        handle.consume(1, 0.0)
        ran.set()

    reader.start(lambda: None)
    reader.tell(command)
    assert ran.wait(30)
    reader.leave()
    reader._thread.join(30)

    assert client.asked[-1] == "close"
    assert client.threads == {"kafka-consumer"}
    assert client not in vars(reader).values()


def calls_when_it_leaves(held: int) -> list[str]:
    """Return the calls that a reader makes on its handle when it leaves at once."""
    reader = idle_reader()
    reader.leave()
    client = Client(held)
    reader._serve(client)
    return client.asked


def test_the_group_is_left_before_the_handle_is_closed() -> None:
    """The group is left, and pending assignments are answered, before the handle is closed.

    While a handle closes, an answer may wait for ever.
    """
    assert calls_when_it_leaves(held=0) == [
        "subscribe",
        "unsubscribe",
        *["poll"] * LAST_POLLS,
        "close",
    ]
    assert calls_when_it_leaves(held=5) == ["subscribe", "unsubscribe", *["poll"] * 5, "close"]


def test_a_handle_is_closed_though_no_broker_takes_its_leave() -> None:
    """If the brokers are away and take nothing back, the handle is closed after some seconds."""
    assert calls_when_it_leaves(held=1000) == [
        "subscribe",
        "unsubscribe",
        *["poll"] * MAX_LAST_POLLS,
        "close",
    ]


def test_a_handle_that_reaches_no_broker_any_more_is_closed() -> None:
    """A handle that no longer reaches a broker is closed, and the thread opens another."""
    client = Client(held=0)

    idle_reader(stopped=True)._serve(client)

    assert client.asked == ["subscribe", "poll", "unsubscribe", *["poll"] * LAST_POLLS, "close"]


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (KafkaError(KafkaError._FATAL, "as it is read"), True),
        (KafkaError(KafkaError.FENCED_INSTANCE_ID, "as a call raises it", fatal=True), True),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN), False),
    ],
)
def test_a_fatal_error_ends_the_handle_however_the_client_gives_it(
    error: KafkaError, *, ends: bool
) -> None:
    """A fatal error ends the handle in whichever form the client reports it.

    Read as a message it has only the number, and `fatal()` is False. A member that the group had
    ended used to count as living.
    """
    reader = idle_reader()

    reader._on_error(error)

    assert reader._broken is ends


@pytest.mark.parametrize("code", [KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG])
def test_an_unreadable_batch_is_reported_with_its_partition(code: int) -> None:
    """An unreadable batch is reported with its partition.

    The client asks for it again for ever. An agent used to say that docllm continues by itself,
    but not where it stands.
    """
    reader, message = idle_reader(), MagicMock(spec=Message)
    message.topic.return_value, message.partition.return_value = "docllm.inbox", 3

    for _ in range(2):
        reader._on_message_error(message, KafkaError(code, "failed at 17"))

    give = reader.bridge.give
    reasons = [call.args[0].reason for call in give.call_args_list]
    assert reasons == [
        (
            "Kafka: failed at 17; docllm.inbox[3] is read no further until its group is moved "
            "past that, or the client can take it"
        )
    ]
    assert not reader._broken


def test_an_unreadable_batch_is_reported_again_only_once_its_partition_was_read() -> None:
    """Each partition has a report of its own, and records of other partitions do not repeat it.

    The client returns the error again every few hundred milliseconds, among the records of other
    partitions.
    """
    reader = idle_reader()
    records = {"a record of 1": record_of(1), "a record of 3": record_of(3)}
    reader.assignment.record.side_effect = lambda message: records[message.value()]
    steps: tuple[tuple[list[Message], list[str]], ...] = (
        ([unreadable(3), read("a record of 1")], ["g.tasks[3]"]),
        ([unreadable(3), unreadable(5), read("a record of 1")], ["g.tasks[5]"]),
        ([read("a record of 1"), unreadable(3), unreadable(5)], []),
        ([read("a record of 3")], []),
        ([unreadable(3), unreadable(5)], ["g.tasks[3]"]),
        ([read("a record of 3"), unreadable(3)], ["g.tasks[3]"]),
        ([unreadable(3)], []),
    )

    for messages, places in steps:
        reader.bridge.give.reset_mock()
        reader._hand_over(messages)

        given = [call.args[0] for call in reader.bridge.give.call_args_list]
        reasons = [event.reason for event in given if isinstance(event, SourceFailed)]
        assert [reason.split("; ")[1].split(" ")[0] for reason in reasons] == places


def test_another_error_is_reported_again_once_any_records_were_read() -> None:
    """Records are the sign that the client works again."""
    reader, error = idle_reader(), KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    reader.assignment.record.return_value = record_of(1)

    for _ in range(2):
        reader._on_error(error)
        reader._on_error(error)
        reader._hand_over([read("a record")])

    given = [call.args[0] for call in reader.bridge.give.call_args_list]
    assert sum(isinstance(event, SourceFailed) for event in given) == 2


def unreadable(number: int) -> Message:
    """Return what the client gives for a batch of a partition that it cannot unpack."""
    message = MagicMock(spec=Message)
    message.topic.return_value, message.partition.return_value = "g.tasks", number
    message.error.return_value = KafkaError(KafkaError._BAD_COMPRESSION, "failed")
    return message


def read(value: str) -> Message:
    """Return a message without an error."""
    message = MagicMock(spec=Message)
    message.error.return_value, message.value.return_value = None, value
    return message


def record_of(number: int) -> Record:
    """Return a record of a partition."""
    return Record(Partition("g.tasks", "id", number, 1), 7, 0, None, b"", [])
