"""Finishes records, so that watermarks move, and wakes the loops that ask and claim."""

import asyncio
from dataclasses import dataclass, field

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable


@dataclass(frozen=True, slots=True)
class Wakeups:
    """The events for which the claimer's two loops wait."""

    ask: asyncio.Event = field(default_factory=asyncio.Event)
    claim: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self) -> None:
        """Make both loops look again for deliveries."""
        self.ask.set()
        self.claim.set()


@dataclass(kw_only=True, eq=False)
class RecordFinisher:
    """Finishes the records of one agent's partitions."""

    partitions: Partitions
    table: InFlightTable
    backpressure: Backpressure
    wakeups: Wakeups

    def finish_with_copies(self, delivery: Delivery, fence: int) -> None:
        """Finish a record and its copies up to `fence`; its result holds for them too.

        `fence` comes from the ledger's row, never from a header.
        """
        behind = self.table.behind
        copies = behind.take_copies(delivery, fence) if delivery.task_id in behind.by_task else ()
        for finished in (*copies, delivery):
            self.partitions.finish_record(finished.partition, finished.offset)
            self.table.remove(finished)

    def advance(self) -> None:
        """Mark moved watermarks, resume reading if there is room, and wake the claimer's loops."""
        self.partitions.flush()
        self.backpressure.update()
        self.wakeups.set()
