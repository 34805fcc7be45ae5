"""Assignments of topics whose ids the brokers have not sent yet. No broker is asked."""

from unittest.mock import MagicMock, create_autospec

from confluent_kafka import Consumer, TopicPartition

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import Commits
from docllm.agent.consumer.kafka.rebalance import LEFT_OUT_S, Rebalance
from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.kafka.topic_watch import TopicWatch
from docllm.agent.ports import Assigned, Event, Partition
from tests.support.clock import HandClock


class Watch(TopicWatch):
    """The ids of one topic from the brokers, none at first; the topic is the known one."""

    def __init__(self, ids: dict[str, str] | None = None) -> None:
        self.ids, self.topics = ids, ["t"]

    def refresh(self) -> None:
        """Give no answer in time."""

    def check(self) -> bool:
        return self.ids is not None

    def is_known(self, topic: str) -> bool:
        return topic in (self.ids or {})


class Heard(ThreadBridge):
    """Records the events, and gives them to no loop."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def give(self, event: Event) -> None:
        self.events.append(event)


class RebalanceHarness:
    """A rebalance with a client that knows one committed offset."""

    def __init__(self, ids: dict[str, str] | None = None) -> None:
        self.watch, self.heard, self.clock = Watch(ids), Heard(), HandClock()
        self.client = MagicMock(spec=Consumer)
        self.client.committed.return_value = [TopicPartition("t", 0, 7)]
        self.rebalance = Rebalance(
            assignment=Assignment(),
            commits=create_autospec(Commits, instance=True),
            watch=self.watch,
            bridge=self.heard,
            clock=self.clock,
        )

    def assign(self) -> None:
        """Let the group give the topic's first partition."""
        self.rebalance.on_assign(self.client, [TopicPartition("t", 0)])

    def step(self) -> None:
        self.rebalance.step(self.client)


def test_a_topic_without_a_known_id_is_not_taken_for_a_recreated_one() -> None:
    """A topic whose id is not known yet is not taken for a recreated one.

    With slow brokers, an agent used to tell people to apply the topics, and read from the start
    where a tool had set offsets.
    """
    harness = RebalanceHarness()

    harness.assign()
    harness.step()
    before = list(harness.heard.events)
    harness.watch.ids = {"t": "id"}
    harness.step()

    assert before == []
    assert harness.heard.events == [Assigned((Partition("t", "id", 0, 1),))]
    assert harness.client.incremental_assign.call_args.args[0][0].offset == 7


def test_a_member_without_partitions_of_a_recreated_topic_joins_again_once() -> None:
    """Partitions 0 and 1 of a new topic stayed without an owner, and the agents never ended.

    The group's leader had assigned the topic while the broker knew only some of its partitions.
    """
    harness = RebalanceHarness(ids={})

    harness.step()
    harness.watch.ids = {"t": "new"}
    harness.step()
    at_once = harness.rebalance.is_left_out()
    harness.clock.at_s += LEFT_OUT_S

    later = [harness.rebalance.is_left_out() for _ in range(2)]
    assert [at_once, *later] == [False, True, False]


def test_a_member_that_gets_some_of_a_recreated_topic_stays() -> None:
    """Only a member without partitions joins anew."""
    harness = RebalanceHarness(ids={})

    harness.step()
    harness.watch.ids = {"t": "new"}
    harness.step()
    harness.assign()
    harness.clock.at_s += LEFT_OUT_S

    assert not harness.rebalance.is_left_out()
