"""The metrics of one agent, in the form that Prometheus reads.

The group's exporter reports what happens to tasks, from the ledger. An agent reports only what the
ledger does not have: the durations of its calls and transactions, and its own state. Any thread may
read the metrics.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from docllm.producer.metrics.family import RouteLabels
from docllm.schemas.version import VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
ROUTES = 5  # routes that get labels of their own; the others share one label
# OpenTelemetry's buckets for LLM calls, with further buckets for long answers; in seconds.
CALL_S = (*(round(0.01 * 2**power, 2) for power in range(14)), 163.0, 327.0, 600.0)
TRANSACTION_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
WAIT_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0)
MAX_KNOWN = 1_000  # routes whose series is known; tasks name their routes
GROUP_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)

# A value that is read at each scrape: its name, its meaning, and the function that returns it.
MetricSource = tuple[str, str, Callable[[], float]]
# A counter for each value of a label: the same, with the label before the function.
LabelledSource = tuple[str, str, str, Callable[[], Mapping[str, int]]]


class AgentMetrics(Collector):
    """What one agent measures.

    `counters`, `by_label` and `gauges` are read at each scrape; counters must never fall. Each
    series has the label `group`, since agents of several groups may be watched by one Prometheus.
    """

    def __init__(
        self,
        *,
        group: str,
        routes: Sequence[str],
        counters: Sequence[MetricSource],
        gauges: Sequence[MetricSource],
        by_label: Sequence[LabelledSource] = (),
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._group = group
        self._labels = RouteLabels(routes, most=ROUTES)
        self._counters = counters
        self._gauges = gauges
        self._by_label = by_label
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._call_s: dict[str, _CallTimes] = {}  # by label
        self._call_s_of: dict[str, _CallTimes] = {}  # the same series, by route
        self._left = Gauge(
            "docllm_ratelimit_remaining",
            "The remaining part of a provider's limit, from its last reply.",
            ["route", "kind"],
            registry=self._registry,
        )
        self._wait_s = Histogram(
            "docllm_task_wait_seconds",
            "How long tasks had been due when they were claimed; one claim a second is sampled.",
            buckets=WAIT_S,
            registry=self._registry,
        )
        self._claim_s, self._settle_s = (
            Histogram(
                f"docllm_{name}_duration_seconds",
                f"How long transactions take that {name} tasks.",
                buckets=TRANSACTION_S,
                registry=self._registry,
            )
            for name in ("claim", "settle")
        )
        self._group_size = Histogram(
            "docllm_settle_group_size",
            "How many tasks are settled in one transaction.",
            buckets=GROUP_SIZES,
            registry=self._registry,
        )

    def called(self, route: str, took_s: float) -> None:
        """Record the duration of a call that ended, successful or not."""
        series = self._call_s_of.get(route)
        if series is None:
            series = self._call_s.setdefault(self._labels.label(route), _CallTimes())
            if len(self._call_s_of) < MAX_KNOWN:
                self._call_s_of[route] = series
        series.counts[bisect_left(CALL_S, took_s)] += 1
        series.sum_s += took_s

    def left(self, route: str, amounts: Mapping[str, float]) -> None:
        """Record the remaining part of a provider's limits by kind; the kinds are a closed set."""
        for kind, amount in amounts.items():
            self._left.labels(self._labels.label(route), kind).set(amount)

    def waited(self, wait_s: float) -> None:
        """Note how long a task had been due when it was claimed."""
        self._wait_s.observe(wait_s)

    def claimed(self, took_s: float) -> None:
        """Note a transaction that claimed tasks."""
        self._claim_s.observe(took_s)

    def settled(self, took_s: float, tasks: int) -> None:
        """Note a transaction that settled so many tasks."""
        self._settle_s.observe(took_s)
        self._group_size.observe(tasks)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text form."""
        return generate_latest(_OfGroup(self._registry, group=self._group))

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect while the agent is built."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield what is read when somebody asks."""
        build = GaugeMetricFamily(
            "docllm_build_info", "Version of this agent.", labels=("version",)
        )
        build.add_metric((VERSION,), 1)
        yield build
        calls = HistogramMetricFamily(
            "docllm_call_duration_seconds", "How long calls of providers take.", labels=("route",)
        )
        for route, series in list(self._call_s.items()):
            calls.add_metric((route,), series.buckets(), series.sum_s)
        yield calls
        for name, text, read in self._counters:
            yield CounterMetricFamily(name, text, value=read())
        for name, text, label, read_each in self._by_label:
            labelled = CounterMetricFamily(name, text, labels=(label,))
            for kind, count in read_each().items():
                labelled.add_metric((kind,), count)
            yield labelled
        for name, text, read in self._gauges:
            yield GaugeMetricFamily(name, text, value=read())


class _CallTimes:
    """The calls of one label by their time, counted in the event loop's thread alone.

    The library's histogram takes a lock twice for each call.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(CALL_S) + 1)
        self.sum_s = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many calls took no longer than each bound."""
        bounds = map(floatToGoString, (*CALL_S, inf))
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class _OfGroup(Collector):
    """All metrics of a registry, with the label `group`."""

    def __init__(self, registry: CollectorRegistry, *, group: str) -> None:
        self._registry = registry
        self._group = {"group": group}

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels=self._group | sample.labels) for sample in family.samples
            ]
            yield family
