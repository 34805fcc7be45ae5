"""Topics as lists, for a world of two agents.

Published records are appended to the lists, and finished records are committed. A record that may
not be published or passed is refused with the promise that it would break.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from docllm.agent.inflight.watermark import OffsetTracker
from docllm.producer.ports import Refusal
from docllm.schemas.task.record.envelope import Outgoing, decode
from docllm.schemas.task.states import FINAL, Status
from tests.support.ledger_database import GROUP, LedgerDatabase

TASKS, TIER, LETTERS = f"{GROUP}.tasks", f"{GROUP}.retry.30s", f"{GROUP}.dlq"
READ = (TASKS, TIER)
LOST = Refusal("no report", permanent=False)

Record = tuple[int, int]  # task id, fence


class BrokenError(Exception):
    """A promise is broken; the text names it."""


@dataclass(slots=True, eq=False)
class View:
    """What one agent knows of one topic.

    It is not `current` when the topic has moved to the other agent and this agent has not noticed.
    """

    topic: str
    position: int
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
    records: dict[int, Record] = field(default_factory=dict)
    current: bool = True

    def finish(self, offset: int) -> None:
        self.tracker.finish_offset(offset)
        self.records.pop(offset, None)


class Bus:
    """The topics of one group, and the publisher that writes to them. A lost record is None."""

    def __init__(self, ledger_db: LedgerDatabase, *, only_loss_counts: bool) -> None:
        self.ledger_db = ledger_db
        self.logs: dict[str, list[Record | None]] = {topic: [] for topic in (*READ, LETTERS)}
        self.committed = dict.fromkeys(READ, 0)
        self.delivery = "delivered"  # or "failed", or "unreported"
        self._only_loss_counts = only_loss_counts

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        for record in records if self.delivery != "failed" else ():
            publication = decode(record.headers)
            self.append(record.topic, publication.task_id, publication.fence)
        return [None if self.delivery == "delivered" else LOST] * len(records)

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        return

    def append(self, topic: str, task_id: int, fence: int) -> None:
        row = self.ledger_db.task(task_id)
        if topic == LETTERS:
            if row.status != Status.DEAD:
                raise BrokenError("P8 a dead letter without a death")
        elif fence > row.fence:
            raise BrokenError("a record has a fence that its row has not reached")
        elif row.status in FINAL or fence < row.fence:
            raise BrokenError("the relay publishes a record that can do nothing")
        self.logs[topic].append((task_id, fence))

    def assign(self, topic: str) -> View:
        return View(topic, self.committed[topic])

    def read(self, view: View) -> None:
        """Let a view read the new records; a view that has lost its topic gets none."""
        log = self.logs[view.topic] if view.current else []
        while view.position < len(log):
            record = log[view.position]
            if record is not None and view.tracker.begin(view.position):
                view.records[view.position] = record
            view.position += 1

    def commit(self, view: View) -> None:
        watermark = view.tracker.watermark
        if not view.current or watermark is None:
            return
        for record in self.logs[view.topic][self.committed[view.topic] : watermark]:
            if record is not None and not self._only_loss_counts:
                self._passable(*record)
        self.committed[view.topic] = max(self.committed[view.topic], watermark)

    def _passable(self, task_id: int, fence: int) -> None:
        row = self.ledger_db.task(task_id)
        if row.status not in FINAL and row.fence <= fence:
            raise BrokenError("P3 the offset passes a task that is not settled")

    def carries(self, task_id: int, fence: int) -> bool:
        """Return whether a record of this task will still be read."""
        return any((task_id, fence) in self.logs[topic][self.committed[topic] :] for topic in READ)

    def lose(self, topic: str) -> None:
        """Forget the uncommitted records of a topic."""
        left = len(self.logs[topic]) - self.committed[topic]
        self.logs[topic][self.committed[topic] :] = [None] * left

    def at_end(self) -> bool:
        """Return whether every record that was not lost is committed."""
        return all(
            self.committed[topic] == len(self.logs[topic])
            for topic in READ
            if None not in self.logs[topic]
        )
