"""Checks now and then whether a consumer handle still reaches a broker.

A handle that receives an empty broker list at the wrong moment drops its connections and never
opens others (librdkafka 2.16, issue 5301). This happened to members without partitions, after the
controller had considered all brokers lost.
"""

from confluent_kafka import Consumer, KafkaException

from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage

ASK_EVERY_S = 10.0
ANSWER_S = 2.0
# By then the group has long given the partitions to others, or no member reaches Kafka.
SILENCE_S = 60.0


class Liveness:
    """Tracks when the current handle last heard from a broker."""

    def __init__(self, *, topic: str, clock: Clock, outage: Outage) -> None:
        self._topic = topic
        self._clock = clock
        self._outage = outage
        self.begin()

    def heard(self) -> None:
        """Note that a broker has sent something."""
        self._outage.answered()
        self.begin()

    def begin(self) -> None:
        """Note that the handle is new."""
        self._heard_at_s = self._clock.now_s()
        self._next_at_s = self._heard_at_s + ASK_EVERY_S

    def has_stopped(self, consumer: Consumer) -> bool:
        """Return whether no broker has answered for so long that a new handle should be opened.

        Asks a broker when nothing was heard for ASK_EVERY_S.
        """
        if self._clock.now_s() < self._next_at_s:
            return False
        try:
            consumer.list_topics(self._topic, timeout=ANSWER_S)
        except KafkaException as error:
            self._outage.failed(error.args[0].str())
            self._next_at_s = self._clock.now_s() + ASK_EVERY_S
            return self._clock.now_s() - self._heard_at_s >= SILENCE_S
        self.heard()
        return False
