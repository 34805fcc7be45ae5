"""Bugs of hooks, results on a topic, processes of handlers, and slots of types."""

from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import delete, select

from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.ledger import batch_ends, hook_runs
from docllm.agent.quota.limit import OwnLimit
from docllm.producer.ledger import hook_orders, outbox
from docllm.producer.ports import Order
from docllm.schemas.ledger.tables import hook
from docllm.schemas.task.hooks import HookEvent
from docllm.schemas.task.record.topics import RESULTS
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import FRAGILE, HOOKED, NARROW, STREAMED


def _forgotten_when_begun() -> AbstractContextManager[Any]:
    lease_due = hook_runs.lease_due

    def forget(connection: Any, *args: Any) -> Any:
        leased = lease_due(connection, *args)
        connection.execute(delete(hook).where(hook.c.id.in_([run.id for run in leased])))
        return leased

    return patched(hook_runs, "lease_due", forget)


def _not_ordered_for_retries() -> AbstractContextManager[Any]:
    place = hook_orders.place

    def some(connection: Any, orders: Any) -> None:
        place(connection, [order for order in orders if order["status"] != "retrying"])

    return patched(hook_orders, "place", some)


def _sums_of_one_task_less() -> AbstractContextManager[Any]:
    sums, build = batch_ends._sums, batch_ends._done.__wrapped__

    def one_less(batches: Any) -> Any:
        own = sums(batches)
        open_tasks = (own.c.open - 1).label("open")
        return select(own.c.batch_id, open_tasks, own.c.ends, own.c.newest_at).subquery()

    def done(*, of_ids: bool) -> Any:
        with patched(batch_ends, "_sums", one_less):
            return build(of_ids=of_ids)

    return patched(batch_ends, "_done", done)


def _ends_without_orders() -> AbstractContextManager[Any]:
    place = hook_orders.place

    def of_tasks(connection: Any, orders: Any) -> None:
        place(connection, [order for order in orders if order["event"] != HookEvent.BATCH_DONE])

    return patched(hook_orders, "place", of_tasks)


def _lines_without_orders() -> AbstractContextManager[Any]:
    place = outbox.place

    def unordered(
        connection: Any, group: str, destination: str, items: Any, **options: Any
    ) -> list[Order]:
        if destination == RESULTS:
            return [Order(0, group, destination, tuple(items))] if items else []
        return place(connection, group, destination, items, **options)

    return patched(outbox, "place", unordered)


async def _blamed(self: HandlerProcesses, handler: Any, context: Any) -> Any:
    return await self._run(handler, context, new=False)


BUGS = {
    "a hook is forgotten when it begins": Bug("P1", _forgotten_when_begun, HOOKED),
    "a failed attempt orders no hook": Bug("P1", _not_ordered_for_retries, HOOKED),
    "a batch is done while a task of it is open": Bug("P1", _sums_of_one_task_less, HOOKED),
    "the end of a batch is written without its order": Bug("P1", _ends_without_orders, HOOKED),
    "the line of a result is sent without an order": Bug("P1", _lines_without_orders, STREAMED),
    "a task pays for the process that another one broke": Bug(
        "P9", replaced(HandlerProcesses, "run", _blamed), FRAGILE
    ),
    "the slots of a type are not counted": Bug(
        "P5", replaced(OwnLimit, "room", lambda _self, _now_s: 1), NARROW
    ),
}
