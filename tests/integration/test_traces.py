"""Traces on real parts: what a collector gets, and that nothing waits for one."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from schemas.ledger import migrations
from schemas.task.trace import trace_of
from tests.integration.deployment import Deployment
from tests.servers.collector import Collector, SeenSpan, collecting

Settings = Callable[[Deployment, str], None]
CONSUMER = 5  # SpanKind of OTLP


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def otel(collector: Collector, *more: str) -> str:
    return "\n".join(("[otel]", f'endpoint = "{collector.url}"', *more, ""))


def traces(spans: list[SeenSpan]) -> dict[str, list[SeenSpan]]:
    """Return the spans of tasks by trace."""
    found: dict[str, list[SeenSpan]] = {}
    for span in spans:
        if span.name != "settle":
            found.setdefault(span.trace, []).append(span)
    return found


def trace_id(deployment: Deployment, task_id: int) -> str:
    with deployment.ledger._engine.connect() as connection:
        return trace_of(migrations.ledger_id(connection), task_id).hex()


def test_all_attempts_of_a_task_are_one_trace_over_a_replay(
    deployment: Deployment, collector: Collector, settings: Settings
) -> None:
    """A task fails, dies, is replayed and succeeds; the successes of others are not traced."""
    settings(deployment, otel(collector, "ratio = 0"))
    deployment.use_tiers("1s", max_attempts=2)
    llm = deployment.llm("--latency", "0")
    deployment.load(3, "good")
    deployment.until_done(timeout_s=60)
    llm.dial("malformed=1.0")
    deployment.load(1, "bad")
    deployment.until_done(timeout_s=60)
    llm.dial("")
    deployment.producer("replay", "--batch", "bad", "--yes")
    deployment.until_done(timeout_s=60)

    ((of_task, spans),) = traces(collector.spans()).items()
    attempts, sends, calls = (of(spans, name) for name in ("process ", "send ", "chat "))
    assert of_task == trace_id(deployment, 4)
    assert [span.error for span in attempts] == ["BAD_OUTPUT", "BAD_OUTPUT", ""]
    assert {span.kind for span in attempts} == {CONSUMER}
    lane, tier, dlq = (deployment.topics.name(name) for name in ("tasks", "retry.1s", "dlq"))
    assert Counter(span.name for span in sends) == {
        f"send {lane}": 2,
        f"send {tier}": 1,
        f"send {dlq}": 1,
    }
    # Each attempt names the publication that brought it and the attempt before.
    by_id = {span.id: span for span in spans}
    for number, attempt in enumerate(attempts):
        names = [by_id[span].name.partition(" ")[0] for _, span in attempt.links]
        assert names == ["send", "process"][: 1 + (number > 0)]
        if number:
            assert attempt.links[1] == (of_task, attempts[number - 1].id)
    assert [by_id[call.parent].id for call in calls] == [attempt.id for attempt in attempts]
    settled = {link for span in collector.spans("settle") for link in span.links}
    assert settled == {(of_task, attempt.id) for attempt in attempts}
    assert {span.service for span in spans} == {"docllm"}


def of(spans: list[SeenSpan], name: str) -> list[SeenSpan]:
    return [span for span in spans if span.name.startswith(name)]
