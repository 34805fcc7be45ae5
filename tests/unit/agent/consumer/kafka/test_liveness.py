"""When a consumer handle counts as one that no longer reaches a broker."""

from confluent_kafka import KafkaError, KafkaException

from docllm.agent.consumer.kafka.liveness import ASK_EVERY_S, SILENCE_S, Liveness
from docllm.schemas.runtime.outage import Outage
from tests.support.clock import HandClock


class Handle:
    """A handle that counts its questions."""

    def __init__(self) -> None:
        self.reaches = True
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout > 0) == ("topic", True)
        self.asked += 1
        if not self.reaches:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class Watched:
    """A handle and its pulse, checked every second."""

    def __init__(self) -> None:
        self.handle = Handle()
        self.clock = HandClock()
        self.pulse = Liveness(
            topic="topic", clock=self.clock, outage=Outage(name="Kafka", clock=self.clock)
        )

    def seconds_until_stopped(self, most_s: int) -> int | None:
        for second in range(most_s):
            if self.pulse.has_stopped(self.handle):  # type: ignore[arg-type]
                return second
            self.clock.at_s += 1
        return None


def test_a_handle_that_reaches_no_broker_for_a_minute_has_stopped() -> None:
    """A handle that reaches no broker for a minute has stopped.

    A member without partitions used to lose all brokers for good, and took no partition when the
    others left.
    """
    watched = Watched()
    watched.handle.reaches = False

    assert watched.seconds_until_stopped(200) == SILENCE_S
    assert watched.handle.asked == SILENCE_S / ASK_EVERY_S

    watched.pulse.begin()  # another handle is opened
    assert watched.seconds_until_stopped(200) == SILENCE_S


def test_an_answer_in_between_is_a_pulse() -> None:
    """An answer in between is a pulse, so a broker's short absence costs no membership."""
    watched = Watched()
    for _ in range(3):
        watched.handle.reaches = False
        assert watched.seconds_until_stopped(int(SILENCE_S - ASK_EVERY_S)) is None
        watched.handle.reaches = True
        assert watched.seconds_until_stopped(int(ASK_EVERY_S) + 1) is None


def test_a_handle_that_receives_records_is_alive() -> None:
    """Records count as a pulse, so a handle that reads asks nothing."""
    watched = Watched()
    for _ in range(20):
        assert watched.seconds_until_stopped(int(ASK_EVERY_S) - 1) is None
        watched.pulse.heard()

    assert watched.handle.asked == 0
