"""Asks now and then whether a consumer handle still reaches a broker.

A handle that hears of no brokers at the wrong moment gives up its connections and looks for no others (librdkafka 2.16, issue 5301 there).
Seen where all of them had been taken for lost by their controller, with members that held no partition.
"""

from confluent_kafka import Consumer, KafkaException

from schemas.clock import Clock

PERIOD_S = 10.0
ANSWER_S = 2.0
SILENCE_S = 60.0  # by then a group has long given its partitions to others, or nobody reaches Kafka


class Pulse:
    """When something was last heard from a broker by the handle in use."""

    def __init__(self, *, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self.heard()

    def heard(self) -> None:
        """Note that a broker has sent something, or that the handle is new."""
        self._heard_s = self._clock.now_s()
        self._next_s = self._heard_s + PERIOD_S

    def has_stopped(self, consumer: Consumer) -> bool:
        """Ask when nothing was heard for a while; return whether nothing has been for so long that another handle should be opened."""
        if self._clock.now_s() < self._next_s:
            return False
        try:
            consumer.list_topics(self._topic, timeout=ANSWER_S)
        except KafkaException:
            self._next_s = self._clock.now_s() + PERIOD_S
            return self._clock.now_s() - self._heard_s >= SILENCE_S
        self.heard()
        return False
