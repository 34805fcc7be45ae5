"""Makes one family of metrics, a gauge or a counter, and the labels of routes."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from docllm.producer.ledger.status.group_sums import OTHER
from docllm.schemas.settings.config import DEFAULT_ROUTE

Labels = tuple[str, ...]


class RouteLabels:
    """Maps routes to labels; tasks may name any route, and metrics must not grow with them.

    The first `most` names are labels of their own, in the order of the settings.
    """

    def __init__(self, configured: Iterable[str], *, most: int = 12) -> None:
        names = dict.fromkeys((DEFAULT_ROUTE, *configured))
        self._names = frozenset(list(names)[:most])

    def label(self, route: str) -> str:
        """Return the label of a route. Tasks of the default route may have no route yet."""
        return route if route in self._names else DEFAULT_ROUTE if not route else OTHER


def gauge(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """Return a gauge."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for of_labels, value in values.items():
        family.add_metric(of_labels, value)
    return family


def counter(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """Return a counter; the library shows `docllm_tasks_ended` as `docllm_tasks_ended_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for of_labels, value in values.items():
        family.add_metric(of_labels, value)
    return family
