"""Reads a group periodically and serves the last reading.

The number of scrapers does not change how often the ledger is read. While the ledger does not
answer, the last reading is served; its timestamp shows its age.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from docllm.producer.ledger.status import snapshot
from docllm.producer.metrics.families import Reading, families
from docllm.producer.metrics.family import RouteLabels, gauge
from docllm.producer.metrics.http_server import JSON, HttpAnswer, HttpPage, health
from docllm.producer.metrics.scale import ProviderAccount, Scale, ScaleLimits, Workload, scale
from docllm.producer.ports import Backlog, TopicAdmin
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, RouteFacts
from docllm.schemas.codes import Code
from docllm.schemas.errors import UnreachableError
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.account import account, configured_routes, quota_key
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.quota import NO_LIMITS, QuotaLimits
from docllm.schemas.task.record.lanes import MAIN
from docllm.schemas.task.record.topics import RESULTS, Topics
from docllm.schemas.task.route_state import RouteState
from docllm.schemas.version import VERSION

log = logging.getLogger(__name__)

EVERY_S = 10.0
# A reading that is older says nothing about the group any more.
FRESH_S = 60.0


# Reasons for which tasks wait although slots are free. More agents would wait too.
MORE_AGENTS_WOULD_WAIT = frozenset({Urgency.GUARD_RAISED, Urgency.TYPE_ASLEEP, Urgency.LOCK_HELD})


class ProviderAccounts:
    """The providers' accounts of the configured routes. Routes of one account share its limits."""

    def __init__(self, config: Config) -> None:
        llms = {route: account(config, route) for route in configured_routes(config)}
        self._keys = {route: quota_key(llm) for route, llm in llms.items()}
        self._limits: Mapping[str, QuotaLimits] = {
            quota_key(llm): llm.limits for llm in llms.values()
        }

    def with_work(self, facts: Iterable[RouteFacts]) -> Collection[ProviderAccount]:
        """Return the accounts of busy open routes; all accounts if there is no such route.

        An account whose routes are all closed is left out.
        """
        facts = tuple(facts)
        of_route: dict[str, list[RouteFacts]] = {}
        for fact in facts:
            of_route.setdefault(fact.name, []).append(fact)
        learned: dict[str, float | None] = {}
        for route, route_facts in of_route.items():
            if all(map(is_closed, route_facts)):
                continue
            key, calls = self._keys.get(route, route), learned_calls(route_facts)
            others = learned.get(key, 0.0)
            learned[key] = None if calls is None or others is None else others + calls
        if not learned:
            return [ProviderAccount(limits=limits) for limits in self._limits.values()]
        return [
            ProviderAccount(limits=self._limits.get(key, NO_LIMITS), learned=calls)
            for key, calls in learned.items()
        ]


def is_closed(facts: RouteFacts) -> bool:
    """Return whether a route takes no calls in an agent: it is stopped, parked or paused."""
    return facts.state != RouteState.OPEN or bool(facts.since)


def learned_calls(facts: Collection[RouteFacts]) -> float | None:
    """Return how many calls at once a route takes, by its level in each agent; None if unknown.

    An agent that has just started has no level yet, and a route that pauses has none for a moment.
    Such agents count with the mean of the others, as long as most agents have a level.
    """
    levels = [
        float(route.allowed or 0) for route in facts if route.allowed and not is_closed(route)
    ]
    free = sum(route.allowed is None and not is_closed(route) for route in facts)
    if not levels or free >= len(levels):
        return None
    return sum(levels) / len(levels) * len(facts)


def workload(reading: Reading, *, slots: int, accounts: ProviderAccounts) -> Workload:
    """Return the group's workload.

    `slots` are an agent's slots while no agent reports any.
    """
    status, sums = reading.snapshot.status, reading.snapshot.sums
    reports = [agent.report for agent in status.agents if agent.works and agent.report is not None]
    facts = [route for report in reports for route in report.routes]
    open_routes = {route.name for route in facts if not is_closed(route)}
    routes = {route.name for route in facts}
    inbox = reading.backlogs.get("inbox")
    retrying = sum(batch.counts["retrying"] for batch in status.batches)
    # Tasks that wait in the ledger are retrying too, or have a `not_before`.
    later = max(retrying, reading.snapshot.waiting)
    succeeded = sum(count for key, count in sums.attempts.items() if key[1] == "succeeded")
    tokens: Counter[str] = Counter()
    for (_, direction), count in sums.tokens.items():
        tokens[direction] += count
    return Workload(
        waiting=max(0, sums.open - later) + (0 if inbox is None else inbox.lag),
        unfinished=sums.open,
        agents=sum(agent.works for agent in status.agents),
        slots=max((report.slots for report in reports), default=0) or slots,
        busy=sum(report.running for report in reports),
        ended_per_s=_ended_per_s(reading),
        oldest_s=max(map(_oldest_s, reports), default=0.0),
        partitions=None if inbox is None else reading.partitions,
        routes=len(routes),
        closed_routes=len(routes - open_routes),
        waits_on_purpose=any(wait.urgency in MORE_AGENTS_WOULD_WAIT for wait in status.waits),
        accounts=accounts.with_work(facts),
        tokens_in=tokens["in"] / succeeded if succeeded else 0.0,
        tokens_out=tokens["out"] / succeeded if succeeded else 0.0,
    )


def _ended_per_s(reading: Reading) -> float:
    """Return the tasks per second that ended lately: in the last minute, or else in ten."""
    batches = reading.snapshot.status.batches
    lately = sum(batch.rate_per_s for batch in batches)
    minutes = [batch.per_minute for batch in batches if batch.per_minute]
    return lately or sum(map(sum, minutes)) / (60 * max(map(len, minutes), default=1))


def _oldest_s(report: AgentReport) -> float:
    return 0.0 if report.oldest_call is None else report.oldest_call.running_s


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
        self._began_at_s, self._read_at_s = -inf, 0.0
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

    def is_due(self) -> bool:
        """Return whether the last reading was begun some seconds ago, also if it failed."""
        return self._clock.now_s() - self._began_at_s >= EVERY_S

    async def read(self, readers: GroupReaders) -> None:
        """Read the group once; keep the last reading if the ledger does not answer."""
        began_s = self._began_at_s = self._clock.now_s()
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
                if topic in present and destination not in {"dlq", RESULTS}:
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
