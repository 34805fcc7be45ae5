"""Commits of offsets, with a client that only records its calls."""

from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import COMMIT_EVERY_S, Commits
from docllm.agent.consumer.kafka.positions import LABEL, Start
from docllm.agent.ports import Partition
from tests.support.clock import HandClock
from tests.support.doubles import stand_in

IDS = {"t": "id-1"}


@dataclass
class Hands:
    """The client: records its commits, and answers synchronous ones."""

    sent: list[dict[int, int]] = field(default_factory=list)
    offsets: list[TopicPartition] = field(default_factory=list)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.offsets = offsets
        self.sent.append({offset.partition: offset.offset for offset in offsets})
        return offsets


@dataclass
class Record:
    number: int
    at: int
    epoch: int

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int:
        return self.epoch

    def timestamp(self) -> tuple[int, int]:
        return (2, 0)

    def key(self) -> None:
        return None

    value = headers = key


class Desk:
    """Commits over an assignment of two partitions of one topic."""

    def __init__(self) -> None:
        self.hands, self.time, self.assignment = Hands(), HandClock(), Assignment()
        self.client = stand_in(Consumer, self.hands)
        self.commits = Commits(assignment=self.assignment, clock=self.time)
        self.partitions = self.assign(0, 1)

    def assign(self, *numbers: int, at: int = 0) -> tuple[Partition, ...]:
        self.assignment.add([("t", number) for number in numbers])
        return self.assignment.begin(
            [Start(TopicPartition("t", number, at)) for number in numbers], IDS
        )

    def second(self) -> None:
        self.time.at_s += COMMIT_EVERY_S
        self.commits.step(self.client)

    def answer(self, error: int | None = None) -> None:
        self.commits.answered(KafkaError(error) if error is not None else None, self.hands.offsets)


def test_marks_are_sent_once_a_second_and_only_when_they_rose() -> None:
    """A mark is sent at the next second if it rose, and not if it is lower or the same."""
    desk = Desk()

    desk.commits.mark(desk.partitions[0], 5)
    desk.second()
    desk.answer()
    desk.commits.mark(desk.partitions[0], 3)
    desk.second()

    assert desk.hands.sent == [{0: 5}]


def test_one_commit_is_under_way_at_a_time() -> None:
    """While a commit's answer is awaited nothing is sent; then the marks made meanwhile are."""
    desk = Desk()
    desk.commits.mark(desk.partitions[0], 5)
    desk.second()
    desk.commits.mark(desk.partitions[0], 7)
    desk.second()
    under_way = list(desk.hands.sent)

    desk.answer()
    desk.second()

    assert under_way == [{0: 5}]
    assert desk.hands.sent == [{0: 5}, {0: 7}]


def test_commit_that_failed_is_sent_again() -> None:
    """An offset counts as committed only once the broker has confirmed it."""
    desk = Desk()
    desk.commits.mark(desk.partitions[0], 5)
    desk.second()

    desk.answer(KafkaError.REBALANCE_IN_PROGRESS)
    desk.second()

    assert desk.hands.sent == [{0: 5}, {0: 5}]


def test_mark_of_an_old_epoch_is_void() -> None:
    """A partition that was revoked and assigned again is not committed by old marks."""
    desk = Desk()
    old = desk.partitions[0]
    desk.assignment.drop([("t", 0)])
    (new,) = desk.assign(0)

    desk.commits.mark(old, 9)
    desk.second()
    desk.commits.mark(new, 2)
    desk.second()

    assert desk.hands.sent == [{0: 2}]


def test_late_answer_of_an_old_epoch_confirms_nothing() -> None:
    """A late answer to an old epoch's commit does not stop the new epoch's lower offset."""
    desk = Desk()
    desk.commits.mark(desk.partitions[0], 500)
    desk.second()
    desk.assignment.drop([("t", 0)])
    (new,) = desk.assign(0)

    desk.answer()
    desk.commits.mark(new, 2)
    desk.second()

    assert desk.hands.sent == [{0: 500}, {0: 2}]


def test_a_revocation_commits_only_the_revoked_partitions() -> None:
    """A revoke commits the marks of the revoked partitions only."""
    desk = Desk()
    for partition in desk.partitions:
        desk.commits.mark(partition, 4)

    desk.commits.commit_now(desk.client, [("t", 1)])

    assert desk.hands.sent == [{1: 4}]


def test_void_partition_is_not_committed() -> None:
    """Nothing is committed for a recreated topic's partition, not even earlier marks."""
    desk = Desk()
    desk.commits.mark(desk.partitions[0], 4)
    desk.assignment.void([("t", 0)])

    desk.second()

    assert desk.hands.sent == []


def test_commit_names_topic_incarnation_and_leader_epoch() -> None:
    """A commit carries the topic's id and the leader epoch of the record below the offset.

    It must not carry the leader epoch of a later record.
    """
    desk = Desk()
    for number, epoch in enumerate([3, 3, 4, 4]):
        desk.assignment.record(stand_in(Message, Record(0, number, epoch)))

    desk.commits.mark(desk.partitions[0], 2)
    desk.second()
    before = desk.hands.offsets[0]
    desk.answer()
    desk.commits.mark(desk.partitions[0], 3)
    desk.second()

    assert before.metadata == LABEL + "id-1"
    assert (before.leader_epoch, desk.hands.offsets[0].leader_epoch) == (3, 4)


def test_a_commit_request_is_answered_by_the_commit_that_follows_it() -> None:
    """A commit request during a commit is answered by the commit after it.

    With nothing to commit it is answered at once.
    """
    desk, reports = Desk(), []
    desk.commits.mark(desk.partitions[0], 5)
    desk.second()
    desk.commits.mark(desk.partitions[0], 6)
    desk.commits.request(lambda: reports.append("second"))

    desk.answer()
    first = list(reports)
    desk.commits.step(desk.client)
    desk.answer()
    desk.commits.request(lambda: reports.append("nothing to do"))
    desk.commits.step(desk.client)

    assert first == []
    assert reports == ["second", "nothing to do"]
