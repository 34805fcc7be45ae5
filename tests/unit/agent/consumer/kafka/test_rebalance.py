"""Assignments of topics whose ids the brokers have not sent yet. No broker is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from unittest.mock import MagicMock

from confluent_kafka import TopicPartition

from agent.consumer.kafka.assignment import Assignment
from agent.consumer.kafka.rebalance import LEFT_OUT_S, Rebalance
from agent.ports import Assigned, Event, Partition


@dataclass
class Watch:
    """The topic ids from the brokers, none at first; the topic is the known one."""

    topics: tuple[str, ...] = ("t",)
    ids: Mapping[str, str] | None = None

    def refresh(self) -> None:
        """Give no answer in time."""

    def check(self) -> bool:
        return self.ids is not None

    def is_known(self, topic: str) -> bool:
        return topic in (self.ids or {})


@dataclass
class Heard:
    events: list[Event] = field(default_factory=list)

    def give(self, event: Event) -> None:
        self.events.append(event)


def test_a_topic_without_a_known_id_is_not_taken_for_a_recreated_one() -> None:
    """A topic whose id is not known yet is not taken for a recreated one.

    With slow brokers, an agent used to tell people to apply the topics, and read from the start
    where a tool had set offsets.
    """
    watch, heard, clock = Watch(), Heard(), MagicMock(**{"now_s.return_value": 100.0})
    client = MagicMock(**{"committed.return_value": [TopicPartition("t", 0, 7)]})
    rebalance = Rebalance(
        assignment=Assignment(), commits=MagicMock(), watch=watch, bridge=heard, clock=clock
    )  # type: ignore[arg-type]

    rebalance.on_assign(client, [TopicPartition("t", 0)])
    rebalance.step(client)
    before = list(heard.events)
    watch.ids = {"t": "id"}
    rebalance.step(client)

    assert before == []
    assert heard.events == [Assigned((Partition("t", "id", 0, 1),))]
    assert client.incremental_assign.call_args.args[0][0].offset == 7


def test_a_member_without_partitions_of_a_recreated_topic_joins_again_once() -> None:
    """Partitions 0 and 1 of a new topic stayed without an owner, and the agents never ended.

    The group's leader had assigned the topic while the broker knew only some of its partitions.
    """
    watch, clock = Watch(ids={}), MagicMock(**{"now_s.return_value": 100.0})
    rebalance = Rebalance(
        assignment=Assignment(), commits=MagicMock(), watch=watch, bridge=Heard(), clock=clock
    )  # type: ignore[arg-type]
    client = MagicMock()

    rebalance.step(client)
    watch.ids = {"t": "new"}
    rebalance.step(client)
    at_once = rebalance.is_left_out()
    clock.now_s.return_value += LEFT_OUT_S

    assert [at_once, rebalance.is_left_out(), rebalance.is_left_out()] == [False, True, False]


def test_a_member_that_gets_some_of_a_recreated_topic_stays() -> None:
    """Only a member without partitions joins anew."""
    watch, clock = Watch(ids={}), MagicMock(**{"now_s.return_value": 100.0})
    client = MagicMock(**{"committed.return_value": [TopicPartition("t", 0, 7)]})
    rebalance = Rebalance(
        assignment=Assignment(), commits=MagicMock(), watch=watch, bridge=Heard(), clock=clock
    )  # type: ignore[arg-type]

    rebalance.step(client)
    watch.ids = {"t": "new"}
    rebalance.step(client)
    rebalance.on_assign(client, [TopicPartition("t", 0)])
    clock.now_s.return_value += LEFT_OUT_S

    assert not rebalance.is_left_out()
