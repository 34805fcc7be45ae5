"""The duty that finds waiting tasks whose records Kafka lost, and publishes them again."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from docllm.agent.ledger.recovery import sweeping
from docllm.producer.ports import TopicAdmin
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.lanes import DESTINATIONS
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import Status
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

# Limits of a sweep after the loss of a whole topic: the ledger has other work, and the other duties
# wait.
SWEPT_PER_S, MAX_SWEPT = 2000.0, 50_000
# Most tasks of each status in one sweep, and the pause between steps, which takes about as long as
# a step.
MAX_WALKED, STEP_PAUSE_S = 50_000, 0.1
LATEST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(slots=True, kw_only=True, eq=False)
class Sweeper:
    """Compares waiting tasks with the oldest record of the topics on which their records may be.

    A task that waits for less than `slack_s` is left alone: its record may be on its way. Tasks
    older than every unread record are found at once. The others are compared with the topic that
    carries their own record, some in each sweep, one after the other.
    """

    transactions: Transactions
    clock: Clock
    topics: Topics
    admin: TopicAdmin
    slack_s: float
    _walked: dict[Status, sweeping.SweepCursor | None] = field(default_factory=dict, init=False)

    async def sweep(self) -> int:
        """Order records for waiting tasks that have none; return how many."""
        everywhere = (*DESTINATIONS, *self.topics.tier_destinations)
        oldest_ms = {name: await self._oldest_ms(name) for name in everywhere}
        total = await self._sweep_oldest(self._topics_by_status(oldest_ms))
        for status in (Status.PENDING, Status.RETRYING):
            if total < MAX_SWEPT:
                carriers = [
                    sweeping.StatusTopics(status, (name,), _oldest([oldest_ms[name]]))
                    for name in everywhere
                ]
                total += await self._walk(status, carriers)
        return total

    async def _sweep_oldest(self, topics_by_status: list[sweeping.StatusTopics]) -> int:
        """Order records for tasks that are older than every record that may be theirs."""
        total = 0
        while count := await self.transactions.write(
            sweeping.replace_lost_records, self.topics.group, topics_by_status, self.slack_s
        ):
            total += self._ordered(count)
            if count < sweeping.PAGE or total >= MAX_SWEPT:
                break
            await self.clock.sleep(sweeping.PAGE / SWEPT_PER_S)
        return total

    async def _walk(self, status: Status, carriers: list[sweeping.StatusTopics]) -> int:
        """Continue the walk over waiting tasks; order records that their carrier has lost."""
        total = 0
        for _ in range(MAX_WALKED // sweeping.STEP):
            count, self._walked[status] = await self.transactions.write(
                sweeping.replace_lost_by_carrier,
                self.topics.group,
                carriers,
                self._walked.get(status),
                self.slack_s,
            )
            total += self._ordered(count)
            if self._walked[status] is None:
                break
            await self.clock.sleep(max(STEP_PAUSE_S, count / SWEPT_PER_S))
        return total

    def _ordered(self, count: int) -> int:
        if count:
            crash.reach("sweep.ordered")
            waiting = number_of(count, "waiting task")
            log.warning("%s without a record on the topic: published again", waiting)
        return count

    def _topics_by_status(self, oldest_ms: Mapping[str, int | None]) -> list[sweeping.StatusTopics]:
        """Return the topics of each status in which a task waits, and their horizon.

        A pending task's record is in its lane: loads, replays and repairs publish there. One
        exception is a task that was claimed from a retry topic and given back: its record is still
        on that topic. If nobody claims it within the slack, the task gets a second record with the
        same fence. A retrying task's record may be on any topic, since an opened guard publishes it
        in its lane.
        """
        topics_of = {Status.PENDING: DESTINATIONS, Status.RETRYING: tuple(oldest_ms)}
        return [
            sweeping.StatusTopics(status, names, _oldest(oldest_ms[name] for name in names))
            for status, names in topics_of.items()
        ]

    async def _oldest_ms(self, destination: str) -> int | None:
        """Return the smallest append time at a topic's committed offsets; None without a lag."""
        readers = self.topics.consumer_group(destination)
        backlog = await self.admin.backlog(readers, [self.topics.name(destination)])
        return backlog.oldest_ms


def _oldest(timestamps_ms: Iterable[int | None]) -> datetime | None:
    known = [timestamp_ms for timestamp_ms in timestamps_ms if timestamp_ms is not None]
    return _time(min(known)) if known else None


def _time(timestamp_ms: int) -> datetime:
    """Return a record's time as the ledger writes it.

    The ledger's times end with the year 9999, but the writer of a record may have named any time.
    """
    return datetime.fromtimestamp(min(max(timestamp_ms / 1000, 0), LATEST_S), UTC).replace(
        tzinfo=None
    )
