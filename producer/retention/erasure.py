"""Erases a tenant or an id from the ledger, page by page, until nothing of it runs any more.

It may be killed at any moment. The same call goes on with what is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import erased_names, erasure_rows
from docllm.producer.ledger.retention.erasure_rows import Erased, Subject
from docllm.producer.retention.pages import Pages
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

WAIT_S = 60.0  # the longest wait for running tasks
CHECK_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class Erasure:
    """One erasure. `progress` is told how many tasks are erased."""

    transactions: Transactions
    clock: Clock
    group: str
    subject: Subject
    progress: Callable[[int], None] = lambda _done: None
    _pages: Pages = field(init=False)
    _erased: Erased = field(default_factory=Erased, init=False)

    def __post_init__(self) -> None:
        self._pages = Pages(self.clock)

    async def run(self, batches: Mapping[int, str], *, actor: str, tasks: int) -> Erased:
        """Erase the subject's data in these batches and in the quarantine; return what was there.

        Tasks that run are waited for, a minute at most. Reasons of the batches' guards go too,
        and names of locks and reports of ended agents that have the tenant or id.
        """
        write = self.transactions.write
        await write(erasure_rows.audit, self.group, actor, self.subject, tasks)
        crash.reach("erase.noted")
        await self._tasks(batches)
        await self._records()
        until_s = self.clock.now_s() + WAIT_S
        ran = bool(self._erased.running)
        while self._erased.running and self.clock.now_s() < until_s:
            await self.clock.sleep(CHECK_EVERY_S)
            running, self._erased.running = set(self._erased.running), []
            await self._all(sorted(running, reverse=True))
        if ran and self.subject.tenant is not None:
            await self._tasks(batches)  # what they ordered before they ended
        self._erased.running = sorted(set(self._erased.running))
        await write(erasure_rows.erase_reasons, list(batches))
        await write(erased_names.erase_locks, self.group, self.subject)
        await write(erased_names.erase_reports, self.group, self.subject)
        return self._erased

    async def _tasks(self, batches: Mapping[int, str]) -> None:
        if self.subject.key is not None:
            read = self.transactions.read
            await self._all(await read(erasure_rows.ids_of_key, self.subject, list(batches)))
            return
        for batch_id in batches:
            before = None
            while self._erased.tasks != before:  # until no task has ordered more meanwhile
                before = self._erased.tasks
                await self._of_tenant(batch_id)

    async def _all(self, ids: Sequence[int]) -> None:
        place = 0
        while place < len(ids):
            place = await self._pages.run(partial(self._page, ids, place))

    async def _page(self, ids: Sequence[int], place: int, most: int) -> tuple[int, int]:
        await self._erase(ids[place : place + most])
        return place + most, min(most, len(ids) - place)

    async def _of_tenant(self, batch_id: int) -> None:
        next_id, last_id = await self.transactions.read(id_range, batch_id)

        async def page(first_id: int, most: int) -> tuple[int, int]:
            ids = (first_id, last_id)
            after, own = await self.transactions.read(
                erasure_rows.ids_of_tenant, self.subject, batch_id, ids, most
            )
            await self._erase(own)
            return after, len(own)

        while next_id <= last_id:
            next_id = await self._pages.run(partial(page, next_id))

    async def _erase(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        tenant = self.subject.tenant is not None
        erased = await self.transactions.write_once(
            erasure_rows.erase, self.group, ids, tenant=tenant
        )
        crash.reach("erase.page_erased")
        self._erased.tasks += erased.tasks
        self._erased.outputs += erased.outputs
        self._erased.running += erased.running
        self.progress(self._erased.tasks)

    async def _records(self) -> None:
        after: int | None = 0
        while after is not None:
            after, erased = await self.transactions.write(
                erasure_rows.erase_records, self.group, self.subject, after
            )
            self._erased.records += erased.records
            self._erased.unread += erased.unread
