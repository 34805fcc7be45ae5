"""When the admin client is opened anew; no broker is asked."""

import asyncio
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from docllm.producer.bus.kafka.admin import REQUEST_S, KafkaTopicAdmin
from docllm.producer.bus.kafka.admin_client import SILENCE_S
from docllm.schemas.errors import UnreachableError
from docllm.schemas.settings.config import KafkaConfig
from tests.support.clock import HandClock


class Asked:
    """Calls to one administration with their answers; the client names who would be asked next."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self._admin = KafkaTopicAdmin(config=KafkaConfig("127.0.0.1:1"), clock=self.clock)
        self.first = self.client

    @property
    def client(self) -> object:
        return self._admin._client

    def fails(self, code: int, after_s: float = REQUEST_S) -> None:
        self.clock.at_s += after_s
        failed: Future[None] = Future()
        failed.set_exception(KafkaException(KafkaError(code)))
        with pytest.raises(UnreachableError):
            asyncio.run(self._admin._unless_missing(failed))

    def works(self, after_s: float = REQUEST_S) -> None:
        self.clock.at_s += after_s
        answered: Future[str | None] = Future()
        answered.set_result("yes")
        assert asyncio.run(self._admin._unless_missing(answered)) == "yes"


def test_a_client_without_answers_is_replaced() -> None:
    """A client that gets no answer is opened anew.

    A client that knew no brokers asked nobody any more, and the agent's sweep stood still until a
    restart.
    """
    asked = Asked()

    asked.fails(KafkaError._TIMED_OUT)
    assert asked.client is asked.first
    asked.fails(KafkaError._TIMED_OUT)
    second = asked.client
    asked.fails(KafkaError._TIMED_OUT)

    assert second is not asked.first
    assert asked.client is second
    asked.fails(KafkaError._TIMED_OUT, SILENCE_S)
    assert asked.client is not second


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_COORDINATOR, KafkaError.TOPIC_AUTHORIZATION_FAILED]
)
def test_any_reply_of_a_broker_is_an_answer(code: int) -> None:
    """A refusal is an answer too: it comes over a working connection."""
    asked = Asked()
    asked.fails(KafkaError._TIMED_OUT)
    asked.fails(code)
    asked.fails(KafkaError._TIMED_OUT)
    asked.works()
    asked.fails(KafkaError._TIMED_OUT)

    assert asked.client is asked.first


def test_a_client_that_cannot_be_opened_now_leaves_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If no new client can be opened, the old one stays, and the agent does not end.

    A certificate may be missing for the moment in which it is replaced.
    """
    asked = Asked()

    def missing(_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))

    with monkeypatch.context() as patched:
        patched.setattr("docllm.producer.bus.kafka.admin.AdminClient", missing)
        asked.fails(KafkaError._TIMED_OUT, SILENCE_S)
        assert asked.client is asked.first
    asked.fails(KafkaError._TIMED_OUT)

    assert asked.client is not asked.first
