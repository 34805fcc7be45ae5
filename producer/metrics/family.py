"""Makes one family of metrics: a gauge or a counter with its labels."""

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

Labels = tuple[str, ...]


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
