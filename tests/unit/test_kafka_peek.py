"""Handles that only look are closed, or left."""

import threading
from typing import cast

import pytest
from confluent_kafka import Consumer

from producer.topics import kafka_peek


class Stuck:
    """A handle whose close does not return."""

    def __init__(self) -> None:
        self.asked, self.end = threading.Event(), threading.Event()

    def close(self) -> None:
        self.asked.set()
        self.end.wait()


def test_a_handle_that_does_not_close_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that drains does not stand there for the sake of a handle that nobody needs any more."""
    monkeypatch.setattr(kafka_peek, "CLOSE_S", 0.01)
    stuck = Stuck()

    kafka_peek.close(cast("Consumer", stuck))

    assert stuck.asked.is_set()
    stuck.end.set()
