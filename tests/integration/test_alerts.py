"""Alerts on whole programs: a real Prometheus scrapes a real group through its troubles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Deployment
from tests.integration.programs import until
from tests.integration.test_exporter import started
from tests.servers.prometheus import Prometheus, faster

RULES = Path(__file__).parents[2] / "deploy/prometheus/docllm.rules.yml"
OF_TIME = {"DocllmExporterStale"}  # compares times, which the test does not make faster


@pytest.fixture
def watched(embedded: Deployment, tmp_path: Path) -> Iterator[tuple[Deployment, Prometheus]]:
    """Yield a group with its exporter and a Prometheus, for which a minute is a second."""
    _, url = started(embedded)
    prometheus = Prometheus(
        folder=tmp_path / "prometheus",
        rules=faster(RULES.read_text()),
        targets=[url.removeprefix("http://")],
    )
    prometheus.start()
    yield embedded, prometheus
    prometheus.stop()


def test_pages_begin_and_end_with_their_cause(watched: tuple[Deployment, Prometheus]) -> None:
    """No agent, then no money, then calm: one page for each cause, and none in the end."""
    group, prometheus = watched
    seen: set[str] = set()

    def burning() -> set[str]:
        seen.update(prometheus.firing() - OF_TIME)
        return prometheus.firing() - OF_TIME

    llm = group.llm("--latency", "0.1", "--faults", "402=1")
    group.load(60)
    until(lambda: burning() == {"DocllmNoAgent"}, "the page that no agent is alive")

    agent = group.agent("--slots", "2", "--until-done")
    until(lambda: burning() == {"DocllmRouteParked"}, "the page that the route is parked")
    assert seen == {"DocllmNoAgent", "DocllmRouteParked"}

    llm.dial()
    resumed = group.run("agent", "resume", "default", "--group", group.group)
    assert resumed.code == 0, resumed.err
    assert agent.wait() == 0
    until(lambda: not burning(), "all pages to end")

    assert seen == {"DocllmNoAgent", "DocllmRouteParked"}
    assert prometheus.value('docllm_tasks_ended_total{state="succeeded"}') == 60
