"""Publishes records on Kafka: one thread serves all callers, group after group.

This module knows bytes, nothing of tasks.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from docllm.producer.bus.kafka.sender import Sender, not_sent
from docllm.producer.ports import Refusal
from docllm.schemas.clients.kafka import outage_of
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record.envelope import Outgoing

log = logging.getLogger(__name__)

# The longest wait before a record is sent. With the message timeout, it stays below the 20 s that a
# publish may take.
WAIT_S = 3.5
GROUP_RECORDS = 20_000
SERVE_S = 0.1
CLOSE_S = 10.0


@dataclass(slots=True)
class Parcel:
    """One call of `publish` and its result."""

    records: Sequence[Outgoing]
    asked_at_s: float
    done: "asyncio.Future[list[Refusal | None]]"
    answer: list[Refusal | None] = field(default_factory=list)

    def tell(self) -> None:
        """Answer the call, in its event loop's thread; a cancelled call no longer waits."""
        if not self.done.done():
            self.done.set_result(self.answer)


class KafkaPublisher:
    """Publisher on Kafka.

    Raises ConfigError for settings that break a promise or that the client refuses.
    """

    def __init__(self, *, config: KafkaConfig, clock: Clock, outage: Outage | None = None) -> None:
        self._clock = clock
        self._sender = Sender(config=config, clock=clock, outage=outage or outage_of(config, clock))
        self._parcels: list[Parcel] = []
        self._change = threading.Condition()
        self._waiting = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kafka-producer", daemon=True)
        self._thread.start()

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record in order, None when it is durable, or why it may not be."""
        if not records:
            return []
        parcel = Parcel(records, self._clock.now_s(), asyncio.get_running_loop().create_future())
        self._waiting += len(records)
        try:
            self._hand_in(parcel)
            return await parcel.done
        finally:
            self._waiting -= len(records)

    def waiting(self) -> int:
        """Return how many records are in the local queue."""
        return self._waiting

    async def close(self) -> None:
        """Send the records handed in so far, and close.

        Records that do not get through within CLOSE_S are left to the relay, because their orders
        stay.
        """
        with self._change:
            self._closing = True
            self._change.notify()
        await asyncio.to_thread(self._thread.join, CLOSE_S)

    def _hand_in(self, parcel: Parcel) -> None:
        with self._change:
            if self._closing:
                raise RuntimeError("publish after close")
            self._parcels.append(parcel)
            self._change.notify()

    # ---- the thread

    def _run(self) -> None:
        while parcels := self._next():
            self._send(parcels)
            for parcel in parcels:
                self._tell(parcel)
        self._sender.close()

    def _next(self) -> list[Parcel]:
        """Return the next group of parcels, or an empty list after `close`.

        While it waits, it lets the client report its errors.
        """
        while True:
            with self._change:
                if not self._parcels and not self._closing:
                    self._change.wait(SERVE_S)
                parcels = self._take()
                if parcels or self._closing:
                    return parcels
            self._sender.serve()

    def _take(self) -> list[Parcel]:
        """Take the next parcels: at most GROUP_RECORDS records, but at least one parcel."""
        sizes = itertools.accumulate(len(parcel.records) for parcel in self._parcels)
        fitting = sum(size <= GROUP_RECORDS for size in sizes)
        count = max(fitting, 1)
        parcels, self._parcels = self._parcels[:count], self._parcels[count:]
        return parcels

    def _send(self, parcels: list[Parcel]) -> None:
        now_s = self._clock.now_s()
        for parcel in parcels:
            parcel.answer = not_sent(
                parcel.records, "not sent, because the brokers did not answer the records before it"
            )
        fresh = [parcel for parcel in parcels if now_s - parcel.asked_at_s < WAIT_S]
        records = [record for parcel in fresh for record in parcel.records]
        try:
            refusals = self._sender.send(records)
        except Exception as error:  # every caller gets an answer, and the thread goes on
            log.exception("the producer failed", extra={"code": Code.INTERNAL_ERROR})
            refusals = not_sent(records, f"the producer failed: {error}")
        answers = iter(refusals)
        for parcel in fresh:
            parcel.answer = list(itertools.islice(answers, len(parcel.records)))

    def _tell(self, parcel: Parcel) -> None:
        try:
            parcel.done.get_loop().call_soon_threadsafe(parcel.tell)
        except RuntimeError:
            log.warning("a publish of %d records lost its event loop", len(parcel.records))
