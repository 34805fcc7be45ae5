"""The stored topic ids in memory."""

import asyncio

import pytest

from docllm.agent.consumer.known_topics import KNOWN_TOPICS_S, StoredIdsReader
from docllm.producer.bus.topic_family import StoredIds, TopicFamily
from tests.support.doubles import stand_in


class FakeFamily:
    """Answers one question after another; None while the ledger is away."""

    def __init__(self, *answers: StoredIds | None) -> None:
        self._answers = list(answers)

    async def stored_ids(self) -> StoredIds | None:
        return self._answers.pop(0)


class FakeClock:
    """Ends the loop after some sleeps."""

    def __init__(self, sleeps: int) -> None:
        self._left = sleeps
        self.slept_s: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        self._left -= 1
        if self._left < 0:
            raise asyncio.CancelledError

    def now_s(self) -> float:
        return 0.0

    def utc_s(self) -> float:
        return 0.0


def ids(topic_id: str) -> StoredIds:
    """Return the stored ids of one topic."""
    return StoredIds("cluster", {"g.tasks": topic_id})


@pytest.mark.parametrize(
    ("answers", "topic_id"), [([ids("new")], "new"), ([None], "old"), ([ids("new"), None], "new")]
)
def test_the_last_answer_counts_while_the_ledger_is_away(
    answers: list[StoredIds | None], topic_id: str
) -> None:
    """A recreated topic is noticed within seconds of `topics apply`."""
    clock = FakeClock(len(answers))
    known = StoredIdsReader(
        family=stand_in(TopicFamily, FakeFamily(*answers)), clock=clock, stored=ids("old")
    )
    assert known.current() == {"g.tasks": "old"}

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(known.run())

    assert known.current() == {"g.tasks": topic_id}
    assert set(clock.slept_s) == {KNOWN_TOPICS_S}
