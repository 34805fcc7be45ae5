"""Settings of every Kafka client of docllm, built in one place that refuses unsafe settings.

This module imports no Kafka client. No error contains a setting's value, because the value may be a
password.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import RawHeaders

Settings = dict[str, str | int | bool]

# All consuming clients use this limit; receive.message.max.bytes, which [kafka.client] may set,
# must be larger.
MAX_FETCH_BYTES = 1 << 20
MAX_BATCH_BYTES = 5 << 20  # above the topics' limit, so that the topic decides what is too large
# A record may wait this long for its delivery report, after a wait in line. Both together stay
# below the 20 s of a publish.
MESSAGE_TIMEOUT_MS = 15_000
# With librdkafka's own 60 s a frozen broker would hold up a commit, and with it a revoke, for a
# minute.
SOCKET_TIMEOUT_MS = 10_000
METADATA_REFRESH_MS = 10_000  # how soon new partitions and recreated topics are seen

# These settings run programs or load libraries. A person who may edit the file must not be able to
# run code in the agent.
EXECUTING = (
    "plugin.library.paths",
    "sasl.kerberos.kinit.cmd",
    "ssl.engine.location",
    "ssl.providers",
)
SET_BY_DOCLLM = (
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "transactional.id",
    "delivery.timeout.ms",
    "retries",
    "message.send.max.retries",
    "default.topic.config",
    "test.mock.num.brokers",  # librdkafka's mock brokers in memory, which would replace bootstrap
)
# Decided by the broker under group.protocol=consumer.
SET_BY_BROKER = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")

SETTING_NOT_TAKEN = (
    "librdkafka has no such setting, or does not take this value; "
    "a file must exist and be readable, "
    "and SASL needs sasl.mechanism (PLAIN, SCRAM-SHA-256, "
    "SCRAM-SHA-512 or OAUTHBEARER) with its login; see librdkafka's CONFIGURATION.md"
)

COMMON: Settings = {
    "client.id": "docllm",
    # Errors arrive as events. librdkafka's own log lines are off: it writes twenty a second while a
    # broker is unreachable.
    "log_level": 2,
    "socket.keepalive.enable": True,
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,
    # When all brokers are away, librdkafka forgets them and begins anew at the bootstrap address,
    # each time with the first backoff and a new thread. Its default of 100 ms made ten threads a
    # second and took 1 % of a core, for each handle of an agent. A new handle waits half of this
    # time before its second connection, which is in the way of the first record.
    "reconnect.backoff.ms": 250,
    "reconnect.backoff.max.ms": 2_000,
    "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
}
# Other values would lose, skip or repeat work, so a person cannot change these settings.
CONSUMER_PROMISES: Settings = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # Offsets behind the last record may be transaction markers, which belong to no record.
    "enable.partition.eof": True,
    "check.crcs": True,
}
PRODUCER_PROMISES: Settings = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "message.timeout.ms": MESSAGE_TIMEOUT_MS,
    "delivery.report.only.error": True,
}
# Small prefetch: tasks take seconds, so prefetched records only become stale.
CONSUMER_HABITS: Settings = {
    "queued.max.messages.kbytes": 2048,
    "queued.min.messages": 1000,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 100,
    # The limits of one answer, for one partition and in all. A larger batch is delivered all the
    # same.
    "fetch.message.max.bytes": 256 << 10,
    "fetch.max.bytes": MAX_FETCH_BYTES,
}
CLASSIC: Settings = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,
    # A member learns of a rebalance by its heartbeat. A cooperative rebalance takes two rounds,
    # during which partitions have no reader.
    "heartbeat.interval.ms": 1_000,
}
PRODUCER_HABITS: Settings = {
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": MAX_BATCH_BYTES,
    # The longest time for which a missing topic delays the other topics.
    "topic.metadata.propagation.max.ms": 5_000,
    # Even if the brokers allow it: an automatically created topic has a retention limit, and the
    # loss would go unnoticed.
    "allow.auto.create.topics": False,
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 64 << 10,
}
CONSUMER_ONLY = re.compile(
    r"group\.|session\.|heartbeat\.|partition\.assignment|coordinator\.|max\.poll|enable\.auto|"
    r"auto\.|queued\.|fetch\.|max\.partition|isolation\.|check\.|enable\.partition|client\.rack|"
    r"offset\.|consume\."
)
PRODUCER_ONLY = re.compile(
    r"queue\.|linger|batch\.|compression\.|acks|request\.(required|timeout)|"
    r"message\.(max|timeout|send)|partitioner|sticky\.|enable\.(idempotence|gapless)|"
    r"transaction\.|queuing\.|delivery\.|retry\."
)


def consumer_settings(config: KafkaConfig, group_id: str) -> Settings:
    """Return the settings of a member of a consumer group.

    Raises ConfigError for a setting that would break a promise.
    """
    membership = CLASSIC
    strategy = config.client.get("partition.assignment.strategy", "cooperative-sticky")
    if config.client.get("group.protocol", "").lower() == "consumer":
        membership = {}
        _refuse(config.client, SET_BY_BROKER, "under group.protocol=consumer the broker decides it")
    elif strategy != "cooperative-sticky":
        raise ConfigError(
            "[kafka.client] partition.assignment.strategy must be cooperative-sticky; "
            "remove the line"
        )
    user_settings = _user_settings(config, CONSUMER_PROMISES, PRODUCER_ONLY)
    defaults = COMMON | CONSUMER_HABITS | membership
    own = CONSUMER_PROMISES | _address(config) | {"group.id": group_id}
    return defaults | user_settings | own


def producer_settings(config: KafkaConfig) -> Settings:
    """Return the settings of the producer.

    Raises ConfigError for a setting that would break a promise.
    """
    user_settings = _user_settings(config, PRODUCER_PROMISES, CONSUMER_ONLY)
    return COMMON | PRODUCER_HABITS | user_settings | PRODUCER_PROMISES | _address(config)


def admin_settings(config: KafkaConfig) -> Settings:
    """Return the settings of a client that neither produces nor joins a group.

    Raises ConfigError as the other functions do.
    """
    foreign = re.compile(f"{CONSUMER_ONLY.pattern}|{PRODUCER_ONLY.pattern}")
    return COMMON | _user_settings(config, {}, foreign) | _address(config)


def refused_setting(config: KafkaConfig, reason: str) -> ConfigError:
    """Return the error for settings that librdkafka did not accept.

    `reason` is librdkafka's text, which may hold a value and is not shown.
    """
    refused = [
        name
        for name in config.client
        if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", reason)
    ]
    if refused:
        return ConfigError(f"[kafka.client] {', '.join(refused)}: {SETTING_NOT_TAKEN}")
    return ConfigError(
        f"[kafka.client] one of {', '.join(config.client)}, or a setting that is missing: "
        f"{SETTING_NOT_TAKEN}"
    )


def outage_of(config: KafkaConfig, clock: Clock) -> Outage:
    """Return the record of the brokers' outages that all clients of a process share."""
    return Outage(name=f"Kafka at {config.bootstrap}", clock=clock)


def unreachable(config: KafkaConfig, reason: str, *, may_pass: bool = True) -> UnreachableError:
    """Return the error for brokers that do not answer."""
    return UnreachableError(
        f"Kafka at {config.bootstrap} does not answer ({reason}); "
        "check that it runs, that [kafka] bootstrap or "
        "DOCLLM_KAFKA_BOOTSTRAP names it, and that security.protocol, "
        "TLS and SASL in [kafka.client] are what it expects",
        may_pass=may_pass,
    )


def refusing(config: KafkaConfig, reason: str) -> UnreachableError:
    """Return the error for brokers that answer with a refusal."""
    return UnreachableError(
        f"Kafka at {config.bootstrap} refuses: {reason}; "
        "check what the user that [kafka.client] names may do with this group and its "
        "topics, and the broker's log",
        may_pass=False,
    )


class HasHeaders(Protocol):
    """A record as librdkafka returns it."""

    def headers(self) -> Any:
        """Return pairs of name and value, or None."""
        ...


def raw_headers(message: HasHeaders) -> RawHeaders:
    """Return a record's headers, or the header BAD_NAMES alone when a name is not UTF-8.

    Kafka allows any bytes in a name. The client decodes the name and fails (confluent-kafka 2.16:
    SystemError), for all headers.
    """
    try:
        return message.headers() or ()
    except (SystemError, UnicodeDecodeError):
        return [(header_names.BAD_NAMES, b"")]


def _user_settings(config: KafkaConfig, promises: Settings, foreign: re.Pattern[str]) -> Settings:
    _refuse(config.client, EXECUTING, "it would run code")
    _refuse(config.client, SET_BY_DOCLLM, "docllm sets it by itself")
    for name, value in config.client.items():
        if name in promises and value.lower() != str(promises[name]).lower():
            raise ConfigError(
                f"[kafka.client] {name} must stay {str(promises[name]).lower()}, "
                "or work could be lost; remove the line"
            )
    return {name: value for name, value in config.client.items() if not foreign.match(name)}


def _refuse(client: Mapping[str, str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in client:
            raise ConfigError(f"[kafka.client] {name} cannot be set: {why}; remove the line")


def _address(config: KafkaConfig) -> Settings:
    return {"bootstrap.servers": config.bootstrap or ""}
