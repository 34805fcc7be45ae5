"""Sends publish orders: this process's new orders at once, abandoned orders later.

Duplicates are harmless, because fence and state decide at the claim. A lost order is not harmless.
So an order is shrunk only by the items that the delivery reports confirm, and an item that its
topic refuses becomes a pointer record, then a quarantine row.
"""

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace

from docllm.producer.ledger import outbox
from docllm.producer.ledger.quarantine import undeliverable
from docllm.producer.ports import Item, Order, Publisher, Refusal
from docllm.producer.publishing import record_builder
from docllm.producer.tracing.publications import PublicationTraces
from docllm.schemas.codes import Code
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.topics import RESULTS, Topics
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

SLICE = 50  # items whose bodies are in memory at once
CROWDED = 10_000  # above this many records in the local queue, new orders are left to the relay


@dataclass(slots=True, kw_only=True)
class Relay:
    """Publishes orders of one group. Any number of processes may run `relay_once`."""

    transactions: Transactions
    publisher: Publisher
    topics: Topics
    clock: Clock
    traces: PublicationTraces | None = None
    _failing: set[str] = field(default_factory=set, init=False)

    @property
    def failing(self) -> frozenset[str]:
        """The destinations to which the last try to publish delivered nothing."""
        return frozenset(self._failing)

    async def send(self, orders: Sequence[Order]) -> None:
        """Publish orders that this process has just written; failed items stay with the relay."""
        for order in orders:
            if self.publisher.waiting() > CROWDED:
                return
            if order.destination not in self._failing:
                await self.publish(order)

    def waiting(self) -> int:
        """Return how many records the bus has not confirmed."""
        return self.publisher.waiting()

    async def relay_once(self) -> int:
        """Publish orders that outlived their grace; return how many records were delivered.

        A failing destination is probed last, with one slice of one order, because each try is slow.
        """
        failing, delivered = self.failing, 0
        group = self.topics.group
        while orders := await self._taken(
            self.transactions.write(outbox.take, group, without=self.failing)
        ):
            for order in orders:
                if order.destination not in self._failing:
                    delivered += await self.publish(order)
        for destination in sorted(failing):
            for order in await self._taken(
                self.transactions.write(outbox.take_one, group, destination)
            ):
                delivered += await self.publish(order, first_slice_only=True)
        return delivered

    async def _taken(self, take: Awaitable[list[Order]]) -> list[Order]:
        orders = await take
        if orders:
            crash.reach("relay.taken")
        return orders

    async def drop_final(self) -> int:
        """Delete orders that could only put inert records on a topic; return how many."""
        return await self.transactions.write(outbox.drop_final, self.topics.group)

    async def publish(self, order: Order, *, first_slice_only: bool = False) -> int:
        """Publish one order and shrink it by the delivered items; return how many records arrived.

        With `first_slice_only`, the other slices are left.
        """
        delivered, unsent = 0, list(order.items)
        for start in range(0, len(order.items), SLICE):
            items = order.items[start : start + SLICE]
            sent, refused = await self._publish_with_lines(replace(order, items=items))
            crash.reach("publish.delivered")
            delivered += sent
            unsent = [item for item in unsent if item not in items or item in refused]
            if first_slice_only or order.destination in self._failing:
                break
        await self.transactions.write(outbox.shrink, order, unsent)
        crash.reach("publish.shrunk")
        return delivered

    async def _publish_with_lines(self, order: Order) -> tuple[int, set[Item]]:
        """Publish a slice; if results are streamed, the lines of dead tasks before their letters.

        Whatever ends a task as dead orders its letter, and a replay waits until that is sent.
        """
        if not self.topics.results or order.destination != "dlq":
            return await self._publish(order)
        _, refused = await self._publish(replace(order, destination=RESULTS))
        left = tuple(item for item in order.items if item not in refused)
        sent, refused_letters = await self._publish(replace(order, items=left))
        return sent, refused | refused_letters

    async def _publish(self, order: Order) -> tuple[int, set[Item]]:
        records = await self.transactions.read(
            record_builder.records_of, self.topics, order, self.clock.utc_s(), self.traces
        )
        refused = await self._deliver(records)
        if refused:
            self._log_refused(order.destination, len(records), list(refused.values()))
        if records and len(refused) == len(records):
            self._failing.add(order.destination)
        elif records:
            self._failing.discard(order.destination)
        return len(records) - len(refused), set(refused)

    def _log_refused(self, destination: str, count: int, refusals: Sequence[Refusal]) -> None:
        """Log the first failure of a destination as a warning, and later failures for debugging.

        A destination that takes nothing is tried every few seconds.
        """
        level = logging.DEBUG if destination in self._failing else logging.WARNING
        message = "%d of %d records for %s were not delivered and are sent again: %s"
        log.log(
            level,
            message,
            len(refusals),
            count,
            destination,
            refusals[0].reason,
            extra={"code": Code.ORDERS_STUCK},
        )

    async def _deliver(self, records: dict[Item, Outgoing]) -> dict[Item, Refusal]:
        """Publish records; return the undelivered items that may still be delivered.

        A record that the topic refuses for good is replaced by a pointer record.
        """
        refused = await self._try_once(records)
        permanent = {item: refusal for item, refusal in refused.items() if refusal.permanent}
        if permanent:
            crash.reach("publish.refused")
            log.warning(
                "%s permanently refused by the topic: %s",
                number_of(len(permanent), "record"),
                next(iter(permanent.values())).reason,
                extra={"code": Code.RECORD_UNDELIVERABLE},
            )
            pointers = {
                item: record_builder.pointer(records[item])
                for item in permanent
                if records[item].value is not None
            }
            refused_pointers = await self._try_once(pointers)
            for item, refusal in permanent.items():
                if item not in pointers or (
                    item in refused_pointers and refused_pointers[item].permanent
                ):
                    await self._set_aside(item, records[item], refusal)
                if item not in refused_pointers or refused_pointers[item].permanent:
                    del refused[item]
        return refused

    async def _try_once(self, records: dict[Item, Outgoing]) -> dict[Item, Refusal]:
        answers = await self.publisher.publish(list(records.values())) if records else []
        return {
            item: answer
            for item, answer in zip(records, answers, strict=True)
            if answer is not None
        }

    async def _set_aside(self, item: Item, record: Outgoing, refusal: Refusal) -> None:
        log.error(
            "item %s of %s cannot be published: %s; it is in the quarantine table",
            item,
            record.topic,
            refusal.reason,
            extra={"code": Code.RECORD_UNDELIVERABLE},
        )
        await self.transactions.write(
            undeliverable, self.topics.group, item, record, refusal.reason
        )
        crash.reach("publish.set_aside")
