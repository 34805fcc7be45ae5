"""Loads tasks. A chunk of lines becomes rows, inputs and one publish order, then records.

Rows, inputs and order are written in one transaction. A load that is killed is simply started
again: it recognizes the tasks that exist, and any relay sends the orders that were left.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from docllm.producer.input.lines import InvalidLine, ValidLine, clashing
from docllm.producer.ledger import outbox, store
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading.backlog_limit import BacklogLimit
from docllm.producer.loading.overflow import Overflow
from docllm.producer.loading.task_row import new_task
from docllm.producer.ports import Order, Publisher
from docllm.producer.publishing import record_builder
from docllm.producer.tracing.publications import PublicationTraces
from docllm.schemas.errors import DocllmError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.topics import Topics

# Lines in one transaction. SQLite has one writer, for which the agents wait too.
CHUNK = 1000
SQLITE_CHUNK = 200
CHUNK_BYTES = 4 << 20
IN_FLIGHT = 4  # chunks between reading and delivery report


@dataclass(slots=True)
class Summary:
    """The counts of a load.

    `before` is the number of tasks that the batch had when the load began; `unsent` is the number
    of records that the relay will publish. `repeated` is the number of the `known` tasks that came
    before in the input, as far as the load sees them.
    """

    before: int = 0
    new: int = 0
    known: int = 0
    repeated: int = 0
    bad: int = 0
    unsent: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Chunk:
    """Lines that are loaded together: the good ones, each with its task, and the bad ones."""

    good: list[ValidLine] = field(default_factory=list)
    tasks: list[NewTask] = field(default_factory=list)
    bad: list[InvalidLine] = field(default_factory=list)


class _OrderedRefusals:
    """Reports bad lines in the order of the input, although chunks finish in any order."""

    def __init__(self, refuse: Callable[[InvalidLine], None]) -> None:
        self._refuse = refuse
        self._next = 0
        self._waiting: dict[int, list[InvalidLine]] = {}

    def put(self, number: int, lines: Iterable[InvalidLine]) -> None:
        """Take the bad lines of a chunk; refuse those whose turn it is."""
        self._waiting[number] = sorted(lines, key=lambda bad: bad.line)
        while self._next in self._waiting:
            chunk = self._waiting.pop(self._next)
            self._next += 1
            for line in chunk:
                self._refuse(line)


class Loader:
    """Loads one input into one batch."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        reading: Executor,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        ledger_id: str,
        into: store.Batch,
        max_attempts_of: Callable[[str], int],
        defaults: TaskDefaults,
        overflow: int,
        backlog: BacklogLimit,
        reject: Callable[[InvalidLine], None],
        is_new: Callable[[ValidLine], None],
        progress: Callable[[int], None],
        traces: PublicationTraces | None = None,
    ) -> None:
        self._traces = traces
        self._transactions = transactions
        self._reading = reading
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._ledger_id = ledger_id
        self._into = into
        self._max_attempts_of = max_attempts_of
        self._defaults = defaults
        self._backlog = backlog
        self._overflow = Overflow(
            transactions=transactions, clock=clock, group=topics.group, limit=overflow
        )
        self._reject = reject
        self._is_new = is_new
        self._progress = progress
        self.summary = Summary()

    async def load(
        self, lines: Iterable[ValidLine | InvalidLine], *, closing: bool = True
    ) -> Summary:
        """Load every good line and report every bad one; with `closing`, close the batch.

        Lines are read on a thread, because standard input may be slow. Raises what stopped the
        load: UnsafeStateError for a cancelled batch, or a permanent database error.
        """
        try:
            await self._load(lines)
        except ExceptionGroup as group:
            # With Python 3.11.0 to 3.11.3, `except*` would raise a group here.
            errors = group.subgroup(DocllmError)
            if errors is None:
                raise
            raise errors.exceptions[0] from None
        if closing:
            await self._transactions.write(store.close_batch, self._into)
        return self.summary

    async def _load(self, lines: Iterable[ValidLine | InvalidLine]) -> None:
        free_chunks = asyncio.Semaphore(IN_FLIGHT)
        size = SQLITE_CHUNK if self._transactions.database.sqlite else CHUNK
        in_chunks = chunks(lines, size, self._new_task)
        refusals = _OrderedRefusals(self._refuse)
        load_from: int | None = None
        async with asyncio.TaskGroup() as group:
            for number in count():
                chunk = await self._reading(lambda: next(in_chunks, None))
                if chunk is None:
                    return
                if not chunk.good:
                    refusals.put(number, chunk.bad)
                else:
                    await free_chunks.acquire()
                    await self._backlog.wait()
                    # Take ids in the order of the lines, because an export follows the ids.
                    first_id = await self._transactions.write(store.take_ids, len(chunk.good))
                    crash.reach("load.ids_taken")
                    refuse = partial(self._refuse_of_chunk, refusals, number, chunk.bad)
                    load_from = first_id if load_from is None else load_from
                    loading = self._load_chunk(chunk, first_id, load_from, refuse)
                    group.create_task(loading).add_done_callback(lambda _: free_chunks.release())

    def _new_task(self, line: ValidLine) -> NewTask:
        return new_task(
            line.task,
            line.value,
            self._max_attempts_of,
            raw_key=line.key.encode(),
            defaults=self._defaults,
        )

    def _refuse_of_chunk(
        self,
        refusals: _OrderedRefusals,
        number: int,
        bad: Sequence[InvalidLine],
        clashes: Sequence[InvalidLine],
    ) -> None:
        refusals.put(number, [*bad, *clashes])

    def _refuse(self, line: InvalidLine) -> None:
        self.summary.bad += 1
        self._reject(line)

    async def _load_chunk(
        self,
        chunk: Chunk,
        first_id: int,
        load_from: int,
        refuse: Callable[[Sequence[InvalidLine]], None],
    ) -> None:
        lines, tasks = chunk.good, chunk.tasks
        await self._overflow.place(tasks)
        accepted = await self._transactions.write(
            store.accept, self._into, tasks, first_id, load_from
        )
        crash.reach("load.accepted")
        refuse(
            [
                clashing(lines[position], self._into.name, accepted.stored.get(position))
                for position in accepted.clashing
            ]
        )
        for position in accepted.new:
            self._is_new(lines[position])
        self.summary.new += len(accepted.new)
        self.summary.known += len(accepted.known)
        self.summary.repeated += accepted.twins
        self._progress(self.summary.new + self.summary.known)
        if accepted.orders:
            await self._publish(
                accepted.orders,
                {task_id: tasks[position] for position, task_id in accepted.new.items()},
            )

    async def _publish(self, orders: Sequence[Order], tasks: dict[int, NewTask]) -> None:
        """Publish the new tasks from memory; shrink the orders by the records that arrived."""
        answers = await self._publisher.publish(
            [record for order in orders for record in self._records(order, tasks)]
        )
        crash.reach("load.published")
        answer_of = iter(answers)
        unsent = [[item for item in order.items if next(answer_of) is not None] for order in orders]
        self.summary.unsent += sum(map(len, unsent))
        self.summary.errors += [answer.reason for answer in answers if answer is not None][:1]
        await self._transactions.write(outbox.shrink_each, orders, unsent)
        crash.reach("load.shrunk")

    def _records(self, order: Order, tasks: dict[int, NewTask]) -> list[Outgoing]:
        topic, due_ms = self._topics.name(order.destination), int(self._clock.utc_s() * 1000)
        named = {item: ((task := tasks[item.id]).tenant, task.hints) for item in order.items}
        all_headers = record_builder.first_headers(
            self._ledger_id, self._topics.group, self._into.name, named, due_ms
        )
        records = [
            Outgoing(topic, (task := tasks[item.id]).key, task.value, headers)
            for item, headers in zip(order.items, all_headers, strict=True)
        ]
        if self._traces is not None:
            for item, record in zip(order.items, records, strict=True):
                record.headers += self._traces.headers(
                    item.id, order.destination, item.fence, order.id
                )
        return records


def chunks(
    lines: Iterable[ValidLine | InvalidLine], size: int, make: Callable[[ValidLine], NewTask]
) -> Iterator[Chunk]:
    """Yield the lines in chunks of at most `size`, bounded in bytes too; `make` makes the tasks."""
    chunk, count, chunk_bytes = Chunk(), 0, 0
    for line in lines:
        if isinstance(line, ValidLine):
            chunk.good.append(line)
            chunk.tasks.append(make(line))
            chunk_bytes += len(line.value)
        else:
            chunk.bad.append(line)
        count += 1
        if count >= size or chunk_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, count, chunk_bytes = Chunk(), 0, 0
    if count:
        yield chunk
