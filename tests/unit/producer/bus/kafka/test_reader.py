"""A reader of whole topics and brokers that refuse; no broker is asked.

Rights are granted for groups and topics by name.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from docllm.producer.bus.kafka import reader as kafka_reader
from docllm.producer.bus.kafka.reader import KafkaTopicReader
from docllm.producer.ports import Incoming
from docllm.schemas.errors import ConfigError, DocllmError, UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig


def message(error: KafkaError | None = None) -> Any:
    """Return the first record of a partition, or an error."""
    attributes = {
        "error": error,
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": b"v",
        "headers": None,
    }
    return SimpleNamespace(
        **{name: lambda value=value: value for name, value in attributes.items()}
    )


def read(
    monkeypatch: pytest.MonkeyPatch, *messages: Any, topic_error: KafkaError | None = None
) -> list[Incoming]:
    """Read a topic of one record, whose client returns these messages."""
    given = iter(messages)
    topic = SimpleNamespace(error=topic_error, partitions=() if topic_error else (0,))
    client = SimpleNamespace(
        list_topics=lambda name, **_: SimpleNamespace(topics={name: topic}),
        get_watermark_offsets=lambda *_, **__: (0, 1),
        assign=lambda _: None,
        poll=lambda _: next(given),
        close=lambda: None,
    )
    monkeypatch.setattr(kafka_reader, "Consumer", lambda _: client)

    async def run() -> list[Incoming]:
        reader = KafkaTopicReader(config=KafkaConfig("b:9092"), clock=SystemClock())
        return [record async for page in reader.read("docllm.dlq") for record in page]

    return asyncio.run(run())


def test_no_right_to_the_readers_own_group_hinders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right to the reader's own group hinders nothing.

    The documents ask for rights to `<group>`; with these, dead letters could be loaded back only
    for the group docllm.
    """
    records = read(
        monkeypatch, message(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), message()
    )

    assert [(record.key, record.value) for record in records] == [(b"k", b"v")]


def test_a_topic_that_may_not_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that may not be read is an error about rights, not about addresses.

    Brokers that refuse do answer.
    """
    with pytest.raises(
        UnreachableError, match=r"b:9092 refuses: .*opic authorization failed; check what the user"
    ):
        read(monkeypatch, message(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, UnreachableError, "refuses: "),
        (KafkaError.LEADER_NOT_AVAILABLE, UnreachableError, "does not answer"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ConfigError, r"there is no topic docllm\.dlq"),
        (KafkaError.TOPIC_EXCEPTION, ConfigError, r"there is no topic docllm\.dlq"),
    ],
)
def test_a_topic_that_is_hidden_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, expected: type[DocllmError], words: str
) -> None:
    """A topic is missing only if the brokers do not know it; a hidden one is not."""
    with pytest.raises(expected, match=words):
        read(monkeypatch, topic_error=KafkaError(code))
