"""Intake: turns the task lines that other people's producers write to `<group>.inbox` into tasks.

Row, input and publish order are committed before the offset moves. What is not a task line goes to the quarantine, and stops
nothing. Producers need to know nothing of docllm: key or no key, no headers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from agent.arrivals import suspect
from agent.partitions import Partitions
from agent.ports import Assigned, Clock, Event, Order, Record, Revoked, SourceFailed, Suspect
from producer import quarantine, store
from producer.accept import new_task
from schemas import crash
from schemas.database import Connection, Database
from schemas.errors import ConfigError, UnsafeStateError
from schemas.lanes import Lane
from schemas.line import LineError, parse

Result = TypeVar("Result")
log = logging.getLogger(__name__)

PAGE = 200
HIGH = 2000
BATCH_HEADER = "docllm-batch"
_MAX_NAME = 191


class Intake:
    """Reads the inbox of one group."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        database: Database,
        lane: Lane,
        clock: Clock,
        group: str,
        max_attempts_of: Callable[[str], int],
        ordered: Callable[[Sequence[Order]], None],
    ) -> None:
        self._partitions = partitions
        self._database = database
        self._lane = lane
        self._clock = clock
        self._group = group
        self._max_attempts_of = max_attempts_of
        self._ordered = ordered
        self._records: deque[Record] = deque()
        self._wake = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Return whether nothing that was read waits."""
        return not self._records

    def finished(self) -> dict[tuple[str, int], int]:
        """Return the watermarks of the inbox's partitions."""
        return self._partitions.marked()

    def deliver(self, event: Event) -> None:
        """Take an event of the inbox's source."""
        match event:
            case list():
                self._records.extend(record for record in event if self._partitions.begin(record.partition, record.offset))
                self._wake.set()
            case Assigned(partitions):
                self._partitions.assign(partitions)
            case Revoked(partitions):
                self._partitions.revoke(partitions)
            case SourceFailed(reason):
                log.warning("%s", reason)
        self._pause()

    def _pause(self) -> None:
        self._partitions.pause(self._partitions.topics if len(self._records) > HIGH else ())

    async def run(self) -> None:
        """Accept what comes, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._records:
                page = [self._records.popleft() for _ in range(min(PAGE, len(self._records)))]
                await self._take([record for record in page if record.partition in self._partitions])
                self._pause()

    async def _take(self, records: Sequence[Record]) -> None:
        by_batch: dict[str, list[Record]] = {}
        suspects: list[Suspect] = []
        for record in records:
            try:
                by_batch.setdefault(self._batch_name(record), []).append(record)
            except LineError as error:
                suspects.append(suspect(record, f"{error.field}: {error.error}; {error.fix}"))
        for name, some in by_batch.items():
            suspects += await self._accept(name, some)
        if suspects:
            log.warning("%d records of the inbox are quarantined, the first: %s", len(suspects), suspects[0].reason)
            self._ordered(await self._run(lambda c: quarantine.keep(c, self._group, suspects)))
            crash.reach("intake.quarantined")
        for record in records:
            self._partitions.finish(record.partition, record.offset)
        self._partitions.flush()

    async def _accept(self, name: str, records: Sequence[Record]) -> list[Suspect]:
        """Accept the task lines among these records; return the others."""
        suspects: list[Suspect] = []
        tasks: list[store.NewTask] = []
        sources: list[Record] = []
        for record in records:
            try:
                value, headers = record.value or b"", quarantine.headers_blob(record.headers)
                tasks.append(new_task(parse(value), value, self._max_attempts_of, raw_key=record.key, headers=headers))
                sources.append(record)
            except LineError as error:
                suspects.append(suspect(record, f"{error.field or 'line'} {error.error}; {error.fix}"))
        if not tasks:
            return suspects
        try:
            accepted = await self._store(name, tasks)
            crash.reach("intake.accepted")
        except (ConfigError, UnsafeStateError) as error:
            return suspects + [suspect(record, str(error), "rejected") for record in sources]
        clash = f"its id is in batch {name!r} with other content"
        self._ordered(accepted.orders)
        return suspects + [suspect(sources[position], clash, "rejected") for position in accepted.clashing]

    async def _store(self, name: str, tasks: Sequence[store.NewTask]) -> store.Accepted:
        into = await self._run(lambda c: store.open_batch(c, name, self._group, "intake"))
        crash.reach("intake.batch_made")
        first = await self._run(lambda c: store.take_ids(c, len(tasks)))
        crash.reach("intake.ids_taken")
        return await self._run(lambda c: store.accept(c, into, tasks, first))

    def _batch_name(self, record: Record) -> str:
        """Return the batch that the producer names, or the group's own."""
        named = [value for name, value in record.headers if name == BATCH_HEADER and value]
        if not named:
            return f"{self._group}-direct"
        text = named[-1].decode("utf-8", "replace")
        if len(named[-1]) > _MAX_NAME or text != text.strip() or not text.isprintable():
            raise LineError(BATCH_HEADER, "is no batch name", f"use at most {_MAX_NAME} printable bytes without surrounding blanks")
        return text

    async def _run(self, work: Callable[[Connection], Result]) -> Result:
        return await self._lane(lambda: self._database.run(work))
