"""Bugs of publishing: orders not written, deleted too early, or sent before they are true."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from docllm.agent.execution import settler
from docllm.agent.ledger.settlements import settling
from docllm.agent.ports.outcome import Dead
from docllm.producer.ledger import outbox, store
from docllm.producer.ports import Item, Order
from docllm.producer.publishing import record_builder
from tests.simulation.bugs import stages
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.machine import GROUP


def _always_deleted() -> AbstractContextManager[Any]:
    shrink = outbox.shrink
    return patched(
        outbox, "shrink", lambda connection, order, left: shrink(connection, order, left[:0])
    )


def _load_without_order() -> AbstractContextManager[Any]:
    accept = store.accept

    def silent(*args: Any) -> Any:
        with patched(outbox, "place", lambda *_args, **_options: []):
            return accept(*args)

    return patched(store, "accept", silent)


def _from_memory() -> AbstractContextManager[Any]:
    write = settling._write_orders

    def remembered(*args: Any) -> Any:
        with patched(
            outbox, "place", lambda _c, group, where, items: [Order(0, group, where, tuple(items))]
        ):
            return write(*args)

    return patched(settling, "_write_orders", remembered)


def _published_first() -> AbstractContextManager[Any]:
    settle, patches = settler.Settler.settle, ExitStack()

    def hasty(self: settler.Settler, delivery: Any, outcome: Any) -> None:
        if isinstance(outcome, Dead) and delivery.row is not None:
            self.own_orders.send(
                [Order(0, GROUP, "dlq", (Item(outbox.TASK, delivery.task_id, delivery.row.fence),))]
            )
        settle(self, delivery, outcome)

    patches.enter_context(patched(settler.Settler, "settle", hasty))
    patches.enter_context(_whatever_became_of_it())
    return patches


_whatever_became_of_it = replaced(record_builder, "_is_dead_of", lambda _row, _item: True)


def _letter_without_body() -> AbstractContextManager[Any]:
    records_of = record_builder.records_of

    def cut(*args: Any) -> Any:
        records = records_of(*args)
        for record in records.values():
            if record.topic.endswith(".dlq"):
                object.__setattr__(record, "value", None)
        return records

    return patched(record_builder, "records_of", cut)


BUGS = {
    "order deleted whatever the report": Bug("P1", _always_deleted),
    "load without an order": Bug("P1", _load_without_order),
    "settled without an order": Bug(
        "P8", replaced(settling, "_write_orders", lambda _connection, _group, _chosen: [])
    ),
    "orders are kept in memory": Bug("P1", _from_memory),
    "a letter before its death": Bug("P8", _published_first),
    "a letter after the replay": Bug("P8", _whatever_became_of_it, stages.LATE_SENDERS),
    "letter without its body": Bug("P8", _letter_without_body),
}
