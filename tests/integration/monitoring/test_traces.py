"""Traces on real parts: what a collector gets, and that nothing waits for one."""

from collections import Counter
from collections.abc import Callable, Iterator

import orjson
import pytest

from docllm.schemas.ledger import migrations
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.trace import trace_of
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.servers.collector import Collector, SeenSpan, collecting

Settings = Callable[[Deployment, str], None]
FOREIGN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
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


@repeated_on_embedded
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


def test_a_killed_agent_a_dead_letter_and_an_inbox_record(
    embedded: Deployment, collector: Collector, settings: Settings
) -> None:
    """Who takes its task back tells of the lost attempt; a foreign `traceparent` is linked."""
    template = "https://jaeger.example/trace/{trace_id}"
    settings(embedded, otel(collector, "ratio = 0", f'link_template = "{template}"'))
    embedded.llm("--latency", "0")
    embedded.load(1, "good")
    embedded.until_done(timeout_s=60)
    embedded.llm("--latency", "60")
    inbox, dlq = embedded.topics.name("inbox"), embedded.topics.name("dlq")
    headers = [("traceparent", FOREIGN.encode()), ("docllm-batch", b"inbox")]
    value = orjson.dumps(task_line(9))
    embedded.bus.write([Outgoing(inbox, None, value, headers)])
    first = embedded.agent()
    embedded.until(lambda: embedded.ledger.counts()["processing"], "the call to begin")
    assert embedded.kill(first)
    embedded.llm("--latency", "0").dial("400=1.0")
    embedded.until_done(timeout_s=60)

    ((trace, spans),) = traces(collector.spans()).items()
    lost, last = of(spans, "process")
    assert trace == trace_id(embedded, 2)
    assert (lost.error, lost.attributes["docllm.outcome"]) == ("AGENT_LOST", "lost")
    assert (last.attributes["docllm.outcome"], last.is_error) == ("dead", True)
    assert lost.end_s - lost.start_s < last.end_s - lost.start_s
    foreign = tuple(FOREIGN.split("-")[1:3])
    assert foreign in last.links
    assert all(foreign in send.links for send in of(spans, "send "))
    (letter,) = embedded.bus.copies(dlq)
    assert letter.value == value
    sent = dict(letter.headers)["traceparent"].decode()
    assert sent.split("-")[1:3] == [trace, of(spans, f"send {dlq}")[0].id]
    shown = orjson.loads(embedded.producer("dead", "show", "t9", "--json"))
    assert shown["otel_trace_id"] == trace
    assert ["traceparent", FOREIGN] in shown["headers"]
    assert template.replace("{trace_id}", trace) in embedded.producer("dead", "show", "t9")


def test_a_collector_that_refuses_costs_no_task_and_is_told_of_once(
    embedded: Deployment, collector: Collector
) -> None:
    """OpenTelemetry's own variables are enough to trace; their values stay secret."""
    collector.status = 500
    embedded.environ |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=hunter2secret",
    }
    embedded.llm("--latency", "0").dial("malformed=0.3")
    embedded.use_tiers("1s")
    embedded.load(30)
    (agent,) = embedded.until_done(timeout_s=90)

    assert embedded.ledger.open() == 0
    assert agent.err.count("takes no spans (HTTP 500)") == 1
    assert {headers["x-key"] for headers, _ in collector.requests} == {"hunter2secret"}
    assert collector.spans() == []
    assert "hunter2secret" not in embedded.said()
    assert not any(b"tells of a small thing" in body for _, body in collector.requests)
