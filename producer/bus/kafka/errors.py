"""Tells which librdkafka errors mean that no broker answers, and how to log the others."""

import logging

from confluent_kafka import KafkaError

LED_ELSEWHERE = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
# It only sums up the earlier error of each broker, which helps more.
ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
# The login or the certificate is wrong.
REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001 - librdkafka's own codes are spelled with an underscore
UNREACHABLE = {
    *REFUSED,
    KafkaError._TRANSPORT,  # noqa: SLF001
    ALL_DOWN,
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._DESTROY_BROKER,  # noqa: SLF001 - the client gave up a connection on which it waited
    KafkaError._WAIT_COORD,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
    # A broker that starts, or a leader that moves: the same question has an answer a moment later.
    *LED_ELSEWHERE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
}


def level(error: KafkaError) -> int:
    """Return the level at which to log a failure.

    An outage is logged by its `Outage`, not by each failed call.
    """
    return logging.DEBUG if error.code() in UNREACHABLE else logging.WARNING
