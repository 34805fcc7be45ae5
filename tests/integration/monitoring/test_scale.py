"""`/scale` as an autoscaler asks it, while whole agents meet a provider's limit and its end."""

import signal
from http import HTTPStatus
from typing import Any

import orjson

from tests.integration.monitoring.test_exporter import page
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import until

AGENTS, SLOTS, FEEDS = 3, 8, 6


def test_the_number_follows_a_limit_that_nobody_set_and_an_outage(embedded: Deployment) -> None:
    """The provider takes fewer calls than one agent makes: one is enough, whatever waits.

    Once it is down, the number is that of the agents that run, and no more.
    """
    llm = embedded.llm("--latency", "0.5", "--in-flight", str(FEEDS))
    embedded.load(4000)
    for _ in range(AGENTS):
        embedded.agent("--slots", str(SLOTS))
    exporter = embedded.start(
        *("producer", "exporter", "--group", embedded.group, "--listen", "127.0.0.1:0"),
        *("--drain-target", "10s"),
        DOCLLM_SLOTS=str(SLOTS),
    )
    until(lambda: "/metrics" in exporter.err or not exporter.running, "the exporter to listen")
    url = exporter.err.split()[-1].removesuffix("/metrics")

    def answer(because: str) -> dict[str, Any]:
        """Return the first answer for this reason."""
        found: dict[str, Any] = {}

        def comes() -> bool:
            status, body = page(f"{url}/api/v1/groups/{embedded.group}/scale")
            found.update(orjson.loads(body) if status == HTTPStatus.OK else {})
            return found.get("because") == because

        until(comes, f"the reason {because}")
        return found

    learned = answer("learned")
    assert learned["desired_agents"] == learned["learned"] < AGENTS
    assert learned["quota"] is None

    llm.signal(signal.SIGKILL)
    assert answer("closed")["desired_agents"] == AGENTS
