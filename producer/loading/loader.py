"""Loads tasks. A chunk of lines becomes rows, inputs and one publish order, then records.

Rows, inputs and order are written in one transaction. A load that is killed is simply started
again: it recognizes the tasks that exist, and any relay sends the orders that were left.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from docllm.producer.app import Parts
from docllm.producer.input.lines import InvalidLine, ValidLine, clashing
from docllm.producer.ledger import outbox, store
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.loading.task_row import new_task
from docllm.producer.loading.unfinished import BacklogLimit, Overflow
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


def _ignore(_fact: object) -> None:
    pass


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


@dataclass(slots=True, kw_only=True)
class Loader:
    """Loads one input into one batch.

    `reading` runs what reads lines, on a thread, because standard input may be slow. `reject` is
    told of each bad line, `is_new` of each line that became a task, and `progress` how many lines
    are tasks of the batch.
    """

    transactions: Transactions
    reading: Executor
    publisher: Publisher
    topics: Topics
    clock: Clock
    ledger_id: str
    into: store.Batch
    max_attempts_of: Callable[[str], int]
    defaults: TaskDefaults = field(default_factory=TaskDefaults)
    overflow: Overflow | None = None
    backlog: BacklogLimit | None = None
    reject: Callable[[InvalidLine], None] = _ignore
    is_new: Callable[[ValidLine], None] = _ignore
    progress: Callable[[int], None] = _ignore
    traces: PublicationTraces | None = None
    summary: Summary = field(default_factory=Summary)
    _refusals: _OrderedRefusals = field(init=False)

    def __post_init__(self) -> None:
        self._refusals = _OrderedRefusals(self._refuse)

    async def load(
        self, lines: Iterable[ValidLine | InvalidLine], *, closing: bool = True
    ) -> Summary:
        """Load every good line and report every bad one; with `closing`, close the batch.

        Raises what stopped the load: UnsafeStateError for a cancelled batch, or a permanent
        database error.
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
            await self.transactions.write(store.close_batch, self.into)
        return self.summary

    async def _load(self, lines: Iterable[ValidLine | InvalidLine]) -> None:
        free_chunks = asyncio.Semaphore(IN_FLIGHT)
        size = SQLITE_CHUNK if self.transactions.database.sqlite else CHUNK
        in_chunks = chunks(lines, size, self._new_task)
        load_from: int | None = None
        async with asyncio.TaskGroup() as group:
            for number in count():
                chunk = await self.reading(lambda: next(in_chunks, None))
                if chunk is None:
                    return
                if not chunk.good:
                    self._refusals.put(number, chunk.bad)
                else:
                    await free_chunks.acquire()
                    if self.backlog is not None:
                        await self.backlog.wait()
                    # Take ids in the order of the lines, because an export follows the ids.
                    first_id = await self.transactions.write(store.take_ids, len(chunk.good))
                    crash.reach("load.ids_taken")
                    load_from = first_id if load_from is None else load_from
                    loading = self._load_chunk(number, chunk, first_id, load_from)
                    group.create_task(loading).add_done_callback(lambda _: free_chunks.release())

    def _new_task(self, line: ValidLine) -> NewTask:
        return new_task(
            line.task,
            line.value,
            self.max_attempts_of,
            raw_key=line.key.encode(),
            defaults=self.defaults,
        )

    def _refuse(self, line: InvalidLine) -> None:
        self.summary.bad += 1
        self.reject(line)

    async def _load_chunk(self, number: int, chunk: Chunk, first_id: int, load_from: int) -> None:
        lines, tasks = chunk.good, chunk.tasks
        if self.overflow is not None:
            await self.overflow.place(tasks)
        accepted = await self.transactions.write(
            store.accept, self.into, tasks, first_id, load_from
        )
        crash.reach("load.accepted")
        name, over_http = self.into.name, self.into.origin is store.Origin.HTTP
        clashes = [
            clashing(lines[position], name, accepted.stored.get(position), over_http=over_http)
            for position in accepted.clashing
        ]
        self._refusals.put(number, [*chunk.bad, *clashes])
        for position in accepted.new:
            self.is_new(lines[position])
        self.summary.new += len(accepted.new)
        self.summary.known += len(accepted.known)
        self.summary.repeated += accepted.twins
        self.progress(self.summary.new + self.summary.known)
        if accepted.orders:
            await self._publish(
                accepted.orders,
                {task_id: tasks[position] for position, task_id in accepted.new.items()},
            )

    async def _publish(self, orders: Sequence[Order], tasks: dict[int, NewTask]) -> None:
        """Publish the new tasks from memory; shrink the orders by the records that arrived."""
        answers = await self.publisher.publish(
            [record for order in orders for record in self._records(order, tasks)]
        )
        crash.reach("load.published")
        answer_of = iter(answers)
        unsent = [[item for item in order.items if next(answer_of) is not None] for order in orders]
        self.summary.unsent += sum(map(len, unsent))
        self.summary.errors += [answer.reason for answer in answers if answer is not None][:1]
        await self.transactions.write(outbox.shrink_each, orders, unsent)
        crash.reach("load.shrunk")

    def _records(self, order: Order, tasks: dict[int, NewTask]) -> list[Outgoing]:
        topic, due_ms = self.topics.name(order.destination), int(self.clock.utc_s() * 1000)
        named = {item: ((task := tasks[item.id]).tenant, task.hints) for item in order.items}
        all_headers = record_builder.first_headers(
            self.ledger_id, self.topics.group, self.into.name, named, due_ms
        )
        records = [
            Outgoing(topic, (task := tasks[item.id]).key, task.value, headers)
            for item, headers in zip(order.items, all_headers, strict=True)
        ]
        if self.traces is not None:
            for item, record in zip(order.items, records, strict=True):
                record.headers += self.traces.headers(
                    item.id, order.destination, item.fence, order.id
                )
        return records


def make_loader(
    parts: Parts,
    into: store.Batch,
    *,
    reading: Executor,
    defaults: TaskDefaults,
    backlog: BacklogLimit | None = None,
    reject: Callable[[InvalidLine], None] = _ignore,
    is_new: Callable[[ValidLine], None] = _ignore,
    progress: Callable[[int], None] = _ignore,
) -> Loader:
    """Return a loader into a batch with the parts of a program."""
    return Loader(
        transactions=parts.transactions,
        reading=reading,
        publisher=parts.publisher,
        topics=parts.topics,
        clock=parts.clock,
        ledger_id=parts.ledger_id,
        into=into,
        max_attempts_of=parts.config.max_attempts_of,
        defaults=defaults,
        overflow=Overflow(
            transactions=parts.transactions,
            clock=parts.clock,
            group=parts.topics.group,
            limit=parts.config.tenant_defaults.overflow,
        ),
        backlog=backlog,
        reject=reject,
        is_new=is_new,
        progress=progress,
        traces=parts.traces,
    )


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
