"""A publisher over the broker in memory.

Its reports may be late, lost, or wrong about undelivered records.
"""

from collections.abc import Sequence

from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.producer.ports import Refusal
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.envelope import Outgoing
from tests.simulation.broker import Broker
from tests.simulation.eventloop import PROCESS
from tests.simulation.weather import Weather

_DELIVERY_S = 20.0
_MAX_BYTES = int(TOPIC_SETTINGS["max.message.bytes"])
_UNPUBLISHABLE = b"unpublishable"  # the topic refuses the dead letter of such a task


class SimPublisher:
    """Writes to the broker."""

    def __init__(self, *, broker: Broker, clock: Clock, weather: Weather) -> None:
        self._broker = broker
        self._clock = clock
        self._weather = weather
        self._waiting = 0

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record, None if it is durable, or why that is not known."""
        self._waiting += len(records)
        process = PROCESS.get()
        self._broker.sending.append(process)
        try:
            await self._clock.sleep(min(_DELIVERY_S / 2, self._weather.delay_s("publish", 0.01)))
            away_s = self._weather.away_s("broker", self._clock.now_s())
            if away_s > _DELIVERY_S / 2:
                await self._clock.sleep(_DELIVERY_S / 2)
                return [Refusal("timed out", permanent=False)] * len(records)
            await self._clock.sleep(away_s)
            answers = [self._one(record) for record in records]
            await self._clock.sleep(min(_DELIVERY_S / 2, self._weather.delay_s("publish", 0.01)))
            return answers
        finally:
            self._waiting -= len(records)
            self._broker.sending.remove(process)

    def _one(self, record: Outgoing) -> Refusal | None:
        if self._weather.strikes("send_fails"):
            return Refusal("not sent", permanent=False)
        unpublishable = record.topic.endswith(".dlq") and _UNPUBLISHABLE in (record.value or b"")
        if unpublishable or len(record.value or b"") > _MAX_BYTES:
            return Refusal("too large", permanent=True)
        self._broker.append(record)
        if self._weather.strikes("sent_twice"):
            self._broker.append(record)
        return (
            Refusal("no report came", permanent=False)
            if self._weather.strikes("report_lost")
            else None
        )

    def waiting(self) -> int:
        """Return how many records are in the local queue."""
        return self._waiting

    async def close(self) -> None:
        """Do nothing: no connection is open."""
