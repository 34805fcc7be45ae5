"""Short-lived handles and the threads of their questions are closed, or else abandoned."""

import asyncio
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError

from docllm.producer.bus.kafka import peek
from docllm.producer.bus.kafka.admin import KafkaTopicAdmin
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig


class Stuck:
    """A handle whose calls never return."""

    def __init__(self) -> None:
        self.asked, self.end = threading.Event(), threading.Event()

    def close(self) -> None:
        self.asked.set()
        self.end.wait()


def test_a_handle_that_does_not_close_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle that does not close is abandoned, so that a draining agent does not wait for it."""
    monkeypatch.setattr(peek, "CLOSE_S", 0.01)
    stuck = Stuck()

    peek.close(cast("Consumer", stuck))

    assert stuck.asked.is_set()
    stuck.end.set()


def test_a_question_that_is_never_answered_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that is never answered is abandoned.

    A wait of librdkafka that began before a backward clock jump of a day used to keep the agent
    from ending.
    """
    monkeypatch.setattr(peek, "CLOSE_S", 0.01)
    monkeypatch.setattr(peek, "LIMIT_S", 0.01)
    stuck = Stuck()

    with pytest.raises(TimeoutError, match=r"no answer within 0 s"):
        asyncio.run(peek.in_own_thread(stuck.close))

    assert stuck.asked.is_set()
    stuck.end.set()


async def test_a_question_that_is_given_up_ends_by_itself() -> None:
    """A cancelled caller does not wait, and the thread's late answer disturbs nobody."""
    stuck, answered = Stuck(), threading.Event()

    def ask() -> None:
        stuck.close()
        answered.set()

    asking = asyncio.create_task(peek.in_own_thread(ask))
    await asyncio.to_thread(stuck.asked.wait)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    stuck.end.set()
    assert answered.wait(60)


def test_answers_and_errors_of_the_separate_thread_are_returned() -> None:
    """Both answers and errors of a separate thread are returned."""

    def fails() -> None:
        raise ValueError("as it is")

    assert asyncio.run(peek.in_own_thread(lambda: 7)) == 7
    with pytest.raises(ValueError, match="as it is"):
        asyncio.run(peek.in_own_thread(fails))


@pytest.mark.parametrize("code", sorted(peek.LASTING))
def test_records_that_cannot_be_read_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Unreadable records are not waited for: the error is reported at once.

    Ten seconds later the message used to be that the brokers do not answer, though a right was
    missing.
    """
    message = SimpleNamespace(error=lambda: KafkaError(code, "as the brokers say"))
    client = SimpleNamespace(assign=lambda _: None, poll=lambda _: message, close=lambda: None)
    monkeypatch.setattr(peek, "Consumer", lambda _: client)

    async def ask() -> None:
        admin = KafkaTopicAdmin(config=KafkaConfig("127.0.0.1:1"), clock=SystemClock())
        await admin._from_peek(admin._peek.oldest_ms({("topic", 0): 7}))

    with pytest.raises(UnreachableError, match=r"refuses: as the brokers say; check what the user"):
        asyncio.run(ask())
