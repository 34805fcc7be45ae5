"""The rounds of repairs: which duties they hold, and when they begin anew."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from unittest.mock import Mock, create_autospec

import pytest

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.maintenance import rounds
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.producer.app import Parts
from docllm.producer.bus.topic_family import TopicFamily
from docllm.producer.ports import Publisher, TopicAdmin
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay.applier import Applier
from docllm.schemas.errors import DeniedError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.topics import Topics
from tests.support.clock import HandClock

TOPICS = Topics("g")
STEPS = [
    [
        "declaring agents lost",
        "resetting lost tasks",
        "reporting agents that are gone",
    ],
    [
        "relaying orders",
        "dropping orders of final tasks",
    ],
    [
        "the sweep",
        "continuing cancels",
        "rolling up counts",
        "forgetting old agents",
        "taking back losses",
        "forgetting old losses",
        "forgetting old locks",
        *(f"trimming {TOPICS.name(destination)}" for destination in TOPICS.destinations),
    ],
    ["applying replays"],
]


class Rested(Exception):  # noqa: N818 - not an error: the round is over
    """A round waits for the next one."""


class OneRoundClock(HandClock):
    """A clock that ends at the first sleep."""

    async def sleep(self, delay_s: float) -> None:
        raise Rested


class LosingClock(HandClock):
    """A clock that notices lost records after a time."""

    def __init__(self, lost_records: asyncio.Event, lost_after_s: float | None) -> None:
        super().__init__()
        self.slept_s = 0.0
        self._lost_records = lost_records
        self._lost_after_s = lost_after_s

    async def sleep(self, delay_s: float) -> None:
        self.slept_s += delay_s
        if self.slept_s == self._lost_after_s:
            self._lost_records.set()


def failing_rounds(clock: HandClock, error: Exception) -> Sequence[DutyLoop]:
    """Return the rounds of an agent whose ledger and bus answer everything with an error."""
    transactions = create_autospec(Transactions, instance=True)
    transactions.write.side_effect = transactions.read.side_effect = error
    admin = create_autospec(TopicAdmin, instance=True)
    admin.backlog.side_effect = error
    relay = create_autospec(Relay, instance=True)
    relay.relay_once.side_effect = relay.drop_final.side_effect = error
    partitions = create_autospec(Partitions, instance=True)
    partitions.marked.return_value = {(TOPICS.name(name), 0): 5 for name in TOPICS.destinations}
    parts = Parts(
        config=Config(),
        topics=TOPICS,
        clock=clock,
        transactions=transactions,
        admin=admin,
        publisher=create_autospec(Publisher, instance=True),
        family=create_autospec(TopicFamily, instance=True),
        ledger_id="ledger",
        kafka=Outage(name="Kafka", clock=clock),
    )
    return rounds.repair_loops(
        parts,
        relay=relay,
        applier=create_autospec(Applier, instance=True),
        heartbeat=create_autospec(Heartbeat, instance=True),
        locks=None,
        lost_records=asyncio.Event(),
        ask_about_tasks_of=Mock(spec=[], side_effect=error),
        ask_about_batches=lambda _batches: None,
        partitions=[partitions],
        resets=Counter(),
    )


def failed_steps(loop: DutyLoop, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run a loop until its pause; return the names under which its steps failed."""
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(Rested):
        asyncio.run(loop())
    return [record.getMessage().partition(" fails (")[0] for record in caplog.records]


def test_each_round_tries_all_its_steps_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """A step that fails does not hold up those behind it, and is logged under its name."""
    clock = OneRoundClock()
    loops = failing_rounds(clock, OSError("away"))
    clock.at_s += rounds.DROP_S

    assert [failed_steps(loop, caplog) for loop in loops] == STEPS


def test_a_missing_right_ends_the_reaper() -> None:
    """The lack of a right does not pass: the agent ends, and its exit code tells an operator."""
    denied = DeniedError("DELETE command denied to user 'app'@'10.0.0.5' for table 'tally'")
    reaping, *_ = failing_rounds(OneRoundClock(), denied)

    with pytest.raises(DeniedError, match="tally"):
        asyncio.run(reaping())


@pytest.mark.parametrize(("lost_after_s", "pause_s"), [(None, 65.0), (0.0, 5.0), (3.0, 8.0)])
def test_the_slow_round_begins_soon_after_records_were_lost(
    lost_after_s: float | None, pause_s: float
) -> None:
    """The round also begins soon if the loss was noticed during the round before (after 0 s)."""
    lost_records = asyncio.Event()
    clock = LosingClock(lost_records, lost_after_s)
    if lost_after_s == 0.0:
        lost_records.set()

    asyncio.run(rounds._pause(clock, lost_records))

    assert (clock.slept_s, lost_records.is_set()) == (pause_s, False)
