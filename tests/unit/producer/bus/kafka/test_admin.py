"""Kafka's errors in questions about topics; no broker is asked."""

import asyncio
import gc
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from docllm.producer.bus.kafka.admin import LATEST, KafkaTopicAdmin, LedElsewhereError
from docllm.producer.bus.kafka.errors import UNREACHABLE
from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig


def asked(code: int, reason: str | None = None) -> None:
    """Ask a question that fails with this code."""
    failed: Future[None] = Future()
    failed.set_exception(KafkaException(KafkaError(code, reason)))

    async def ask() -> None:
        await KafkaTopicAdmin(
            config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock()
        )._unless_missing(failed)

    asyncio.run(ask())


@pytest.mark.parametrize("code", sorted(UNREACHABLE))
def test_a_broker_that_cannot_answer_now_is_asked_again(code: int) -> None:
    """A broker that cannot answer now is asked again; the caller waits, and nothing ends."""
    with pytest.raises(UnreachableError):
        asked(code)


def test_a_connection_that_the_client_gave_up_is_one_of_these() -> None:
    """A connection that the client gave up is retried too.

    A fault run found that an agent ended with 5 when Kafka had been frozen for 20 s.
    """
    assert {KafkaError._DESTROY_BROKER, KafkaError._WAIT_COORD} <= UNREACHABLE


def test_brokers_that_the_controller_does_not_know_yet_are_asked_again() -> None:
    """Brokers that the controller does not know yet are asked again.

    `topics apply` right after Kafka's start or a freeze used to end as if the topic could never be
    made.
    """
    with pytest.raises(UnreachableError, match="fenced"):
        asked(
            KafkaError.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
        )
    with pytest.raises(UnreachableError, match=r"refuses: .*only 1 broker"):
        asked(
            KafkaError.INVALID_REPLICATION_FACTOR,
            "The target replication factor of 3 cannot be reached: only 1 broker(s).",
        )


def test_a_refusal_is_raised_with_advice() -> None:
    """A refusal is raised with the address and advice: a retry would be refused again."""
    with pytest.raises(
        UnreachableError, match=r"127.0.0.1:1 refuses: .*authorization failed; check what the user"
    ) as caught:
        asked(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert not isinstance(caught.value, LedElsewhereError)


def test_offsets_of_a_leader_that_has_just_begun_are_asked_again() -> None:
    """A new leader's offsets are asked for again: it does not know its high watermark at first.

    That happens with several replicas.
    """
    with pytest.raises(LedElsewhereError):
        asked(KafkaError.OFFSET_NOT_AVAILABLE)


async def test_offsets_are_asked_again_when_another_broker_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets are asked for again if another broker leads.

    `topics apply` once ended with 3 because a broker did not know yet that it led a new topic.
    """
    monkeypatch.setattr("docllm.producer.bus.kafka.admin.MOVED_S", 0.0)
    answers: list[dict[tuple[str, int], int]] = []

    async def moved_once(*_: object) -> dict[tuple[str, int], int]:
        answers.append({("topic", 0): 7})
        if len(answers) == 1:
            raise LedElsewhereError("not yet")
        return answers[-1]

    admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
    monkeypatch.setattr(admin, "_offsets_now", moved_once)
    assert (await admin._offsets([("topic", 0)], LATEST)) == {("topic", 0): 7}
    assert len(answers) == 2


async def test_partitions_that_were_added_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added partitions are awaited until the brokers know them.

    The controller adds them first, and the caller must find them.
    """
    monkeypatch.setattr("docllm.producer.bus.kafka.admin.CHECK_EVERY_S", 0.0)
    answers = iter((4, 4, 6))

    async def done(*_: object) -> None:
        return None

    async def known(*_: object) -> list[tuple[str, int]]:
        return [("topic", number) for number in range(next(answers))]

    async def offsets(partitions: list[tuple[str, int]], _: object) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, 0)

    admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
    for name, stand_in in (
        ("_change", done),
        ("_partitions", known),
        ("_offsets_now", offsets),
    ):
        monkeypatch.setattr(admin, name, stand_in)
    await admin.grow("topic", 6)

    assert next(answers, None) is None


def answered(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


async def test_a_setting_that_a_broker_hides_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that a broker hides is left out.

    Some services omit a setting, or send it without a value. Every command used to end with a
    traceback, or compare with None.
    """
    entries = {name: SimpleNamespace(value=value) for name, value in TOPIC_SETTINGS.items()}
    del entries["retention.ms"]
    entries["retention.bytes"].value = None
    topic = SimpleNamespace(topic_id="id", partitions=[0, 1])
    client = SimpleNamespace(
        describe_topics=lambda *_, **__: {"topic": answered(topic)},
        describe_configs=lambda resources, **__: {
            resource: answered(entries) for resource in resources
        },
    )
    admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
    monkeypatch.setattr(admin._renewal, "client", client)
    descriptions = (await admin.describe(["topic"]))["topic"]

    assert descriptions.settings == {
        name: value
        for name, value in TOPIC_SETTINGS.items()
        if name not in {"retention.ms", "retention.bytes"}
    }
    assert (descriptions.topic_id, descriptions.partitions) == ("id", 2)


@pytest.mark.parametrize(("topic", "tried"), [("group.dlq", 2), ("group.tasks", 1)])
def test_a_service_that_chooses_the_codec_makes_the_topic_without_one(
    monkeypatch: pytest.MonkeyPatch, topic: str, tried: int
) -> None:
    """A topic whose codec is refused is made without it; any other refusal is raised at once."""
    settings: list[dict[str, str]] = []

    def refuse(new_topics: list[Any], **_: object) -> dict[str, Future[Any]]:
        settings.append(new_topics[0].config)
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, "not yours")))
        return {topic: future}

    async def create() -> None:
        admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
        client = SimpleNamespace(create_topics=refuse, poll=lambda _: None)
        monkeypatch.setattr(admin._renewal, "client", client)
        await admin.create(topic, 4, None)

    with pytest.raises(UnsafeStateError, match=f"refused to create {topic}: not yours"):
        asyncio.run(create())
    assert ["compression.type" in each for each in settings] == [True, False][2 - tried :]


def test_a_refused_login_is_not_waited_for() -> None:
    """Another try would be refused too, unlike one on brokers that are not up yet."""
    admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    may_pass = []
    for code in (KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, KafkaError._TRANSPORT):
        admin._on_error(KafkaError(code))
        error = admin._outage_error(timed_out)
        assert error is not None
        may_pass.append(error.may_pass)

    assert may_pass == [True, False, True]


def test_an_answer_that_fails_after_its_caller_gave_up_is_not_told() -> None:
    """A drained agent gives its questions up; what Kafka says later is nobody's error."""
    told: list[str] = []

    async def give_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        answer: Future[None] = Future()
        answer.set_running_or_notify_cancel()  # as the client does
        admin = KafkaTopicAdmin(config=KafkaConfig(bootstrap="127.0.0.1:1"), clock=SystemClock())
        asking = asyncio.create_task(admin._answer(answer))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        del asking
        answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        await asyncio.sleep(0)  # the loop passes the error on
        del answer
        gc.collect()

    asyncio.run(give_up())

    assert told == []
