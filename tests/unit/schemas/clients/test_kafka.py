"""The settings of Kafka clients."""

from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from confluent_kafka import Consumer, Message, Producer

from docllm.producer.bus.kafka.peek import Peek
from docllm.producer.bus.kafka.reader import OWN
from docllm.producer.loading import foreign_records
from docllm.schemas.clients.kafka import (
    CONSUMER_PROMISES,
    Settings,
    admin_settings,
    consumer_settings,
    producer_settings,
    raw_headers,
    refused_setting,
    unreachable,
)
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.line.parsing import LineError
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import NotOursError, decode

PASSWORD = "hunter2"  # noqa: S105 - not a real one


def config(**client: str) -> KafkaConfig:
    return KafkaConfig(
        "broker:9092", {name.replace("_", "."): value for name, value in client.items()}
    )


def for_consumer(config: KafkaConfig) -> Settings:
    return consumer_settings(config, "g")


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (for_consumer, "enable.auto.commit", "true"),
        (for_consumer, "enable.auto.offset.store", "true"),
        (for_consumer, "auto.offset.reset", "latest"),
        (for_consumer, "check.crcs", "false"),
        (for_consumer, "partition.assignment.strategy", "range"),
        (for_consumer, "group.id", "other"),
        (for_consumer, "group.instance.id", "one"),
        (producer_settings, "acks", "1"),
        (producer_settings, "enable.idempotence", "false"),
        (producer_settings, "partitioner", "random"),
        (producer_settings, "message.timeout.ms", "0"),
    ],
)
def test_settings_that_lose_work_are_refused(
    settings: Callable[[KafkaConfig], Settings], name: str, value: str
) -> None:
    """What would skip, lose or misplace records is refused by name, without value."""
    with pytest.raises(ConfigError, match=name):
        settings(KafkaConfig("broker:9092", {name: value}))


@pytest.mark.parametrize(
    "name", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location"]
)
@pytest.mark.parametrize("settings", [producer_settings, admin_settings, for_consumer])
def test_settings_that_run_code_are_refused(
    name: str, settings: Callable[[KafkaConfig], Settings]
) -> None:
    """Settings that load a library or run a command are refused."""
    with pytest.raises(ConfigError, match=name):
        # A value that must not be accepted.
        settings(KafkaConfig("broker:9092", {name: "/tmp/evil"}))  # noqa: S108


def test_promise_that_is_written_out_is_taken() -> None:
    """A setting that repeats what docllm sets anyway is accepted."""
    settings = consumer_settings(config(enable_auto_commit="false", auto_offset_reset="error"), "g")

    assert settings["enable.auto.commit"] is False
    assert settings["auto.offset.reset"] == "error"


def test_classic_group_is_cooperative_with_a_short_session() -> None:
    """The default is the classic protocol, cooperative, with a session of 10 s."""
    settings = consumer_settings(config(), "g")

    assert settings["group.protocol"] == "classic"
    assert settings["partition.assignment.strategy"] == "cooperative-sticky"
    assert settings["session.timeout.ms"] == 10_000
    assert settings["group.id"] == "g"


def test_new_protocol_leaves_session_and_assignor_to_the_broker() -> None:
    """With group.protocol=consumer, neither session timeout nor assignor is set.

    The client would refuse to start with them.
    """
    settings = consumer_settings(config(group_protocol="consumer"), "g")

    assert not settings.keys() & {
        "session.timeout.ms",
        "partition.assignment.strategy",
        "heartbeat.interval.ms",
    }
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        consumer_settings(config(group_protocol="consumer", session_timeout_ms="6000"), "g")


def test_each_client_gets_its_own_settings() -> None:
    """Security settings reach every client; consumer and producer settings only their own."""
    everything = config(security_protocol="ssl", fetch_min_bytes="2", compression_type="zstd")

    assert (
        producer_settings(everything).items()
        >= {"security.protocol": "ssl", "compression.type": "zstd"}.items()
    )
    assert "fetch.min.bytes" not in producer_settings(everything)
    assert (
        consumer_settings(everything, "g").items()
        >= {"security.protocol": "ssl", "fetch.min.bytes": "2"}.items()
    )
    assert "compression.type" not in consumer_settings(everything, "g")
    assert not admin_settings(everything).keys() & {"fetch.min.bytes", "compression.type"}


@pytest.mark.parametrize(
    "client",
    [
        {"message.max.bytes": str(8 << 20)},
        {"receive.message.max.bytes": "2000000"},
        {"group.protocol": "Consumer", "client.rack": "a"},
    ],
    ids=str,
)
def test_settings_that_librdkafka_takes_are_taken_by_every_client(client: dict[str, str]) -> None:
    """Settings that librdkafka accepts work in every client.

    The first one used to end agents, the second one caused a traceback of `replay --from-topic`:
    librdkafka compares them with what other settings must be.
    """
    chosen = KafkaConfig("127.0.0.1:1", client)

    Producer(producer_settings(chosen))
    Consumer(consumer_settings(chosen, "g"))
    Consumer(
        {**Peek(settings=admin_settings(chosen), clock=SystemClock())._settings, "group.id": "peek"}
    )
    Consumer({**admin_settings(chosen), **CONSUMER_PROMISES, **OWN})


def test_a_record_makes_no_topic_by_chance() -> None:
    """Publishing never creates a topic.

    On brokers that create topics, dead letters of a deleted topic would land in one with short
    retention, unnoticed.
    """
    reports: list[str | None] = []
    ours = producer_settings(config(topic_metadata_propagation_max_ms="100"))
    brokers = {"test.mock.num.brokers": 1, "delivery.report.only.error": False, "log_level": 0}
    producer = Producer(
        {**ours, **brokers, "on_delivery": lambda error, _: reports.append(error and error.name())}
    )

    producer.produce("docllm.dlq", b"v", b"k")
    producer.flush(10)

    assert reports == ["UNKNOWN_TOPIC_OR_PART"]


def test_no_error_shows_a_value() -> None:
    """An error names the setting and hides its value."""
    secret = config(sasl_password=PASSWORD)

    refused = refused_setting(
        secret, f'Invalid value "{PASSWORD}" for configuration property "sasl.password"'
    )
    away = unreachable(secret, "Connection refused")

    assert isinstance(refused, ConfigError)
    assert isinstance(away, UnreachableError)
    assert "sasl.password" in str(refused)
    assert "broker:9092" in str(away)
    assert PASSWORD not in f"{refused} {away} {secret!r}"


@pytest.mark.parametrize(
    "wrong", [SystemError("exception set"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")]
)
def test_unreadable_headers_are_marked_as_unreadable(wrong: Exception) -> None:
    """Headers with a name that is not UTF-8 are marked as unreadable.

    The client fails on such a name, which must not end the reader.
    """
    message = MagicMock(spec=Message)
    message.headers.side_effect = wrong

    headers = raw_headers(message)

    assert headers == [(header_names.BAD_NAMES, b"")]
    with pytest.raises(NotOursError, match="not UTF-8"):
        decode(headers)
    with pytest.raises(LineError, match="headers"):
        foreign_records.task_of(
            key=b"k",
            value=b'{"id":"a","prompt":"p"}',
            headers=headers,
            group="group",
            max_attempts_of=lambda _: 5,
        )


def test_no_headers_of_the_client_mean_an_empty_list() -> None:
    """A record without headers has none; the client returns None."""
    message = MagicMock(spec=Message)
    message.headers.return_value = None

    assert list(raw_headers(message)) == []
