"""Reads a group periodically and serves the last reading.

The number of scrapers does not change how often the ledger is read. While the ledger does not
answer, the last reading is served; its timestamp shows its age.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from docllm.producer.ledger.status import snapshot
from docllm.producer.metrics.families import Reading, families
from docllm.producer.metrics.family import gauge
from docllm.producer.metrics.http_server import JSON, HttpAnswer, HttpPage, health
from docllm.producer.metrics.route_labels import RouteLabels
from docllm.producer.metrics.scale import Scale, ScaleLimits, scale
from docllm.producer.metrics.workload import ProviderAccounts, workload
from docllm.producer.ports import Backlog, TopicAdmin
from docllm.schemas.codes import Code
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.lanes import MAIN
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.version import VERSION

log = logging.getLogger(__name__)

EVERY_S = 10.0
# A reading that is older says nothing about the group any more.
FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class GroupReaders:
    """Where a group is read: its ledger, its bus, and the topics that it has there."""

    transactions: Transactions
    admin: TopicAdmin
    topics: Topics


class Exporter(Collector):
    """The metrics of one group."""

    def __init__(
        self,
        *,
        group: str,
        config: Config,
        scale_limits: ScaleLimits,
        clock: Clock,
        schema: str,
    ) -> None:
        self._group = group
        self._routes = RouteLabels(config.routes)
        self._slots, self._accounts = config.agent.slots, ProviderAccounts(config)
        self._scale_limits = scale_limits
        self._clock = clock
        self._schema = schema
        self._reading: Reading | None = None
        self._read_at_s = 0.0
        self._told: set[Code] = set()  # what is wrong, and was logged
        self._order, self._order_since_s = 0, 0.0  # the oldest publish order, and its first reading
        self._registry = CollectorRegistry()
        self._registry.register(self)

    @property
    def pages(self) -> dict[str, HttpPage]:
        """The pages that an HTTP server shows."""
        return {
            "/metrics": HttpPage(self._metrics),
            f"/api/v1/groups/{self._group}/scale": HttpPage(self._scale),
            "/livez": HttpPage(lambda: health(""), is_public=True),
            "/readyz": HttpPage(self._ready, is_public=True),
        }

    async def read_forever(self, readers: GroupReaders) -> None:
        """Read the group every few seconds, until cancelled."""
        while True:
            await self.read(readers)
            await self._clock.sleep(EVERY_S)

    async def read(self, readers: GroupReaders) -> None:
        """Read the group once; keep the last reading if the ledger does not answer."""
        began_s = self._clock.now_s()
        try:
            group_snapshot = await readers.transactions.read(
                snapshot.read_snapshot, self._group, self._routes.label
            )
        except (UnreachableError, DatabaseError) as error:
            self._tell(Code.EXPORTER_STALE, "the ledger cannot be read, the metrics are old", error)
            return
        self._told.discard(Code.EXPORTER_STALE)
        backlogs, partitions = await self._of_bus(readers)
        self._read_at_s = self._clock.now_s()
        took_s = self._read_at_s - began_s
        oldest_order = group_snapshot.status.oldest_order
        if oldest_order != self._order or not self._order:
            self._order, self._order_since_s = oldest_order, self._read_at_s
        self._reading = Reading(
            group_snapshot,
            self._clock.utc_s(),
            took_s,
            backlogs,
            partitions,
            order_seen_s=self._read_at_s - self._order_since_s,
        )

    async def _of_bus(self, readers: GroupReaders) -> tuple[dict[str, Backlog], int | None]:
        """Return what waits by destination, and how many partitions the topic of tasks has.

        A bus that does not answer has neither.
        """
        backlogs: dict[str, Backlog] = {}
        partitions = None
        topics, admin = readers.topics, readers.admin
        try:
            present = await admin.describe(topics.names)
            if (tasks := present.get(topics.name(MAIN))) is not None:
                partitions = tasks.partitions
            for destination in topics.destinations:
                topic = topics.name(destination)
                if topic in present and destination != "dlq":
                    consumers = topics.consumer_group(destination)
                    backlogs[destination] = await admin.backlog(consumers, [topic])
        except UnreachableError as error:
            self._tell(Code.SERVER_AWAY, "the bus does not answer, its metrics are missing", error)
        else:
            self._told.discard(Code.SERVER_AWAY)
        return backlogs, partitions

    def _tell(self, code: Code, text: str, error: Exception) -> None:
        """Log what is wrong, once while it lasts."""
        if code not in self._told:
            log.warning("%s: %s", text, error, extra={"code": code})
        self._told.add(code)

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect before the first reading."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last reading; before it, only those of the exporter itself."""
        build = GaugeMetricFamily(
            "docllm_build_info", "Versions of this exporter.", labels=("group", "version", "schema")
        )
        build.add_metric((self._group, VERSION, self._schema), 1)
        yield build
        yield gauge(
            "docllm_ledger_up",
            "Whether the ledger was read within the last minute.",
            ("group",),
            {(self._group,): not self._stale_because()},
        )
        if self._reading is not None:
            # An old reading says nothing about how many agents there should be, as for `/scale`.
            scaled = None if self._stale_because() else self._scaled(self._reading)
            yield from families(self._reading, self._routes, scaled)

    def _scaled(self, reading: Reading) -> Scale:
        load = workload(reading, slots=self._slots, accounts=self._accounts)
        return scale(load, self._scale_limits)

    def _scale(self) -> HttpAnswer:
        """Answer an autoscaler; without a fresh reading, by an error that changes nothing."""
        if self._reading is None or self._stale_because():
            return self._ready()
        answer = orjson.dumps(self._scaled(self._reading).as_json())
        return HttpAnswer(answer, content_type=JSON)

    def _metrics(self) -> HttpAnswer:
        return HttpAnswer(generate_latest(self._registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    def _ready(self) -> HttpAnswer:
        return health(self._stale_because())

    def _stale_because(self) -> str:
        """Return why nothing is known of the group now; empty if it is."""
        if self._reading is None:
            return "the group has not been read yet"
        age_s = self._clock.now_s() - self._read_at_s
        return f"the ledger has not been read for {age_s:.0f} s" if age_s > FRESH_S else ""
