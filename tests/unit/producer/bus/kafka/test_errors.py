"""Kafka's errors: which mean an outage, and how loud they are logged."""

import logging

import pytest
from confluent_kafka import KafkaError

from docllm.producer.bus.kafka.errors import LED_ELSEWHERE, UNREACHABLE, level


@pytest.mark.parametrize("code", sorted(UNREACHABLE))
def test_an_outage_is_logged_once_and_not_by_each_call(code: int) -> None:
    """The `Outage` of a server says when it begins and when it ends."""
    assert level(KafkaError(code)) == logging.DEBUG


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_a_refusal_is_a_warning(code: int) -> None:
    """Waiting does not help, so a person must read it."""
    assert level(KafkaError(code)) == logging.WARNING


def test_a_leader_that_moves_is_an_outage() -> None:
    """The same question has an answer a moment later."""
    assert LED_ELSEWHERE < UNREACHABLE
