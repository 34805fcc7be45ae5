"""What an agent measures: few series, and numbers that are read when somebody asks."""

from collections.abc import Callable

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from docllm.agent.quota.provider_headers import left
from docllm.agent.reporting.metrics import AgentMetrics


def made(fenced: Callable[[], float] = lambda: 0.0) -> AgentMetrics:
    return AgentMetrics(
        group="g",
        routes=["fast", "default"],
        counters=[("docllm_fenced", "Fenced.", fenced)],
        gauges=[("docllm_event_loop_lag_seconds", "Lag.", lambda: 0.5)],
    )


def families(metrics: AgentMetrics) -> dict[str, Metric]:
    found = text_string_to_metric_families(metrics.text().decode())
    return {family.name: family for family in found}


def values(metrics: AgentMetrics) -> dict[tuple[str, str], float]:
    """Return each value that is no bucket, by name and route."""
    return {
        (sample.name, sample.labels.get("route", "")): sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_calls_are_measured_by_route_and_transactions_by_kind() -> None:
    """Sums and counts are those of what was noted."""
    metrics = made()
    metrics.called("fast", 2.0)
    metrics.called("fast", 400.0)
    metrics.called("", 1.0)
    metrics.claimed(0.25)
    metrics.settled(0.5, 30)
    metrics.waited(7.0)
    metrics.left("fast", {"tokens": 900.0})

    found = values(metrics)

    assert found["docllm_call_duration_seconds_sum", "fast"] == 402
    assert found["docllm_call_duration_seconds_count", "default"] == 1
    assert found["docllm_claim_duration_seconds_sum", ""] == 0.25
    assert found["docllm_settle_duration_seconds_count", ""] == 1
    assert found["docllm_settle_group_size_sum", ""] == 30
    assert found["docllm_task_wait_seconds_sum", ""] == 7
    assert found["docllm_ratelimit_remaining", "fast"] == 900


def test_every_series_names_the_group() -> None:
    """One Prometheus tells the agents of two groups apart, also by their processes' memory."""
    found = families(made())
    assert "process_resident_memory_bytes" in found
    assert {sample.labels["group"] for family in found.values() for sample in family.samples} == {
        "g"
    }


def test_values_are_read_when_somebody_asks() -> None:
    """A counter is what it is now."""
    fenced = 1.0
    metrics = made(lambda: fenced)
    assert values(metrics)["docllm_fenced_total", ""] == 1
    fenced = 3.0
    assert values(metrics)["docllm_fenced_total", ""] == 3


def test_an_agent_has_less_than_300_series_whatever_strangers_name() -> None:
    """A hundred thousand routes are one label, and a provider's headers name no kinds of limits."""
    configured = [f"r{number}" for number in range(50)]
    metrics = AgentMetrics(group="g", routes=configured, counters=(), gauges=())
    for number in range(100_000):
        metrics.called(f"r{number}", 0.1)
    for number in range(1000):
        for form in ("x-ratelimit-remaining-{}", "anthropic-ratelimit-{}-remaining"):
            kinds = ("requests", "tokens", "input-tokens", "output-tokens", f"kind-{number}")
            headers = {form.format(kind): "5" for kind in kinds}
            metrics.left(f"r{number}", left(headers))
    assert sum(len(family.samples) for family in families(metrics).values()) < 300


def test_buckets_reach_from_fast_answers_to_long_ones() -> None:
    """A call of ten milliseconds and one of nine minutes are told apart."""
    metrics = made()
    metrics.called("fast", 0.005)
    metrics.called("fast", 540.0)
    of_calls = families(metrics)["docllm_call_duration_seconds"]
    below = {
        float(sample.labels["le"]): sample.value
        for sample in of_calls.samples
        if sample.name.endswith("_bucket")
    }
    assert (below[0.01], below[327.0], below[600.0]) == (1, 1, 2)
