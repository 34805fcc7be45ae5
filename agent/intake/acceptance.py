"""Intake: makes tasks of the lines that other programs write to the group's inbox.

The inbox is the topic `<group>.inbox`. Row, input and publish order are committed before the offset
moves. A record that is not a task line goes to the quarantine and stops nothing. A line that takes
long to read is read in the child process. Producers need to know nothing of docllm: a key is
optional, and headers are not needed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from docllm.agent.inflight.decoder import letter_record, rejected_record
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import (
    Assigned,
    Clock,
    Event,
    Letters,
    Record,
    Recreated,
    RejectedRecord,
    Revoked,
    SourceFailed,
)
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.ledger import batch_options, quarantine, store
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading import foreign_records
from docllm.producer.loading.task_row import give_defaults
from docllm.producer.loading.unfinished import BacklogLimit, Overflow
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.settings.config import Config
from docllm.schemas.task.failures import Disposition
from docllm.schemas.task.record.envelope import is_letter, record_bytes
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

InboxTask = tuple[Record, NewTask]
READ_BURST_S = 0.02  # the longest time of reading without a pause


class Inbox:
    """Keeps records until they are taken; pauses the inbox while it keeps enough of them."""

    def __init__(self, *, partitions: Partitions, limits: InFlightLimits) -> None:
        self._partitions = partitions
        self._limits = limits
        self._records: deque[Record] = deque()
        self._bytes = 0  # of the records in `_records`
        self._wake = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether no record waits."""
        return not self._records

    def add(self, records: Sequence[Record]) -> None:
        """Keep the records that are new to this agent."""
        begun = [
            record for record in records if self._partitions.begin(record.partition, record.offset)
        ]
        self._records.extend(begun)
        self._bytes += sum(map(_size, begun))
        self._wake.set()

    async def wait(self) -> None:
        """Wait until records were added since the last call."""
        await self._wake.wait()
        self._wake.clear()

    def take_page(self) -> list[Record]:
        """Take the oldest records, up to the limit for one transaction."""
        page: list[Record] = []
        size = 0
        most, most_bytes = self._limits.inbox_page, self._limits.inbox_page_bytes
        while self._records and len(page) < most and size < most_bytes:
            page.append(self._records.popleft())
            size += _size(page[-1])
        self._bytes -= size
        return page

    def finish(self, records: Sequence[Record]) -> None:
        """Let the offsets pass these records."""
        for record in records:
            self._partitions.finish_record(record.partition, record.offset)
        self._partitions.flush()

    def pause_or_resume(self) -> None:
        """Pause the inbox while enough records wait, and resume it once they are fewer."""
        limits = self._limits
        enough = len(self._records) > limits.inbox_records or self._bytes > limits.inbox_bytes
        self._partitions.pause(self._partitions.topics if enough else ())


def _size(record: Record) -> int:
    return record_bytes(record.key, record.value, record.headers)


@dataclass(kw_only=True, eq=False)
class Intake:
    """Reads the inbox of one group."""

    partitions: Partitions
    transactions: Transactions
    letters: Letters
    apart: Executor
    clock: Clock
    counts: Counts
    group: str
    config: Config
    own_orders: OwnOrders
    failures: Failures
    memory: MemoryWatch
    limits: InFlightLimits

    def __post_init__(self) -> None:
        self._overflow = Overflow(
            transactions=self.transactions,
            clock=self.clock,
            group=self.group,
            limit=self.config.tenant_defaults.overflow,
        )
        self._backlog = BacklogLimit(
            transactions=self.transactions,
            clock=self.clock,
            group=self.group,
            most=self.config.inbox.max_backlog,
            say=partial(log.info, "the inbox: %s"),
        )
        self._joins = self.config.inbox.join_batches
        self._inbox = Inbox(partitions=self.partitions, limits=self.limits)

    def apply(self, config: Config) -> None:
        """Take over changed settings."""
        self.config = config
        self._overflow.limit = config.tenant_defaults.overflow

    @property
    def idle(self) -> bool:
        """Whether no record waits."""
        return self._inbox.is_empty

    def deliver(self, event: Event) -> None:
        """Handle an event of the inbox's source."""
        match event:
            case list():
                self._inbox.add(event)
            case Assigned(partitions):
                self.partitions.assign(partitions)
            case Revoked(partitions):
                self.partitions.revoke(partitions)
            case Recreated(topic, known):
                self.counts.topic(topic, known=known)
            case SourceFailed(reason, fatal):
                log.warning("%s", reason, extra={"code": Code.RECORDS_UNREAD})
                if fatal:
                    self.failures.report(reason)
        self._inbox.pause_or_resume()

    async def run(self) -> None:
        """Turn records into tasks, until cancelled."""
        while True:
            await self._inbox.wait()
            while not self._inbox.is_empty:
                await self._backlog.wait()
                page = self._inbox.take_page()
                await self._take([record for record in page if record.partition in self.partitions])
                self._inbox.pause_or_resume()

    async def _take(self, records: Sequence[Record]) -> None:
        tasks_of: dict[str, list[InboxTask]] = {}
        rejected: list[RejectedRecord] = []
        began_s = self.clock.now_s()
        for record in await self._without_letters(records):
            line = await self._read(record)
            if isinstance(line, str):
                rejected.append(rejected_record(record, line))
            else:
                batch_name, task = line
                tasks_of.setdefault(batch_name, []).append((record, task))
            if (took_s := self.clock.now_s() - began_s) > READ_BURST_S:
                # Pause as long as the reading took, so that slow lines use at most half of the
                # loop's time.
                await self.clock.sleep(took_s)
                began_s = self.clock.now_s()
        await self._take_bare_letters(tasks_of)
        for batch_name, tasks in tasks_of.items():
            rejected += await self._accept(batch_name, tasks)
        if rejected:
            log.warning(
                "%s of the inbox quarantined, the first: %s",
                number_of(len(rejected), "record"),
                rejected[0].reason,
                extra={"code": Code.RECORD_QUARANTINED},
            )
            self.own_orders.send(
                await self.transactions.write(quarantine.keep, self.group, rejected)
            )
            crash.reach("intake.quarantined")
            self.counts.quarantined += len(rejected)
        self._inbox.finish(records)

    async def _without_letters(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that are no dead letters of the ledger's tasks."""
        letters = [letter_record(record) for record in records if is_letter(record.headers)]
        if not letters:
            return list(records)
        foreign = {
            (letter.topic, letter.partition, letter.offset)
            for letter in await self.letters.without_letters(letters)
        }
        return [
            record
            for record in records
            if not is_letter(record.headers)
            or (record.partition.topic, record.partition.number, record.offset) in foreign
        ]

    async def _take_bare_letters(self, tasks_of: dict[str, list[InboxTask]]) -> None:
        """Take the dead letters without headers, and remove them from `tasks_of`."""
        name = store.direct_batch(self.group)
        if not (tasks := tasks_of.pop(name, [])):
            return
        topic = tasks[0][0].partition.topic
        taken = await self.letters.take_lines({task.digest for _, task in tasks}, topic)
        if others := [(record, task) for record, task in tasks if task.digest not in taken]:
            tasks_of[name] = others

    async def _read(self, record: Record) -> foreign_records.ReadLine:
        """Return the batch and the task of a record, or why it is no task line."""
        return await foreign_records.read_apart(
            record.key,
            record.value,
            record.headers,
            group=self.group,
            max_attempts_of=self.config.max_attempts_of,
            limit_of=partial(limit_of, self.config),
            apart=self.apart,
            failed=self.memory.note,
        )

    async def _accept(self, batch_name: str, tasks: Sequence[InboxTask]) -> list[RejectedRecord]:
        """Store the tasks of these records; return the records that the batch does not take."""
        try:
            accepted = await self._store(batch_name, [task for _, task in tasks])
            crash.reach("intake.accepted")
        except (ConfigError, UnsafeStateError) as error:
            return [
                rejected_record(record, str(error), Disposition.REJECTED) for record, _ in tasks
            ]
        self.own_orders.send(accepted.orders)
        return [
            rejected_record(
                tasks[position][0], foreign_records.clash_text(batch_name), Disposition.REJECTED
            )
            for position in accepted.clashing
        ]

    async def _store(self, batch_name: str, tasks: Sequence[NewTask]) -> store.Accepted:
        batch = await self.transactions.write(
            store.open_batch, batch_name, self.group, store.Origin.INBOX, joins=self._joins
        )
        crash.reach("intake.batch_made")
        defaults = await self.transactions.read(batch_options.task_defaults, batch.id)
        for task in tasks:
            give_defaults(task, defaults)
        await self._overflow.place(tasks)
        first_id = await self.transactions.write(store.take_ids, len(tasks))
        crash.reach("intake.ids_taken")
        return await self.transactions.write(store.accept, batch, tasks, first_id)
