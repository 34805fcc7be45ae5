"""Health pages under faults: only an agent that nothing else helps is called dead."""

from collections.abc import Callable
from http import HTTPStatus

import pytest

from docllm.agent.reporting.health import DEAD_S
from tests.integration.monitoring.test_agent_http import answer
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import until
from tests.servers import DatabaseServer
from tests.servers.process import free_ports

BLOCKS = f"""
import time


async def work(context):
    time.sleep({DEAD_S + 20})
    return {{"done": True}}
"""


def test_a_frozen_database_restarts_no_agent(
    on_kafka: Deployment, database_server: DatabaseServer
) -> None:
    """A restart would repeat the calls that run; the agent is alive, and not ready."""
    (port,) = free_ports(1)
    on_kafka.llm("--latency", "0")
    on_kafka.load(1)
    on_kafka.agent(DOCLLM_AGENT_HTTP=f"127.0.0.1:{port}")
    until(lambda: answer(port, "/readyz")[0] == HTTPStatus.OK, "the agent to be ready")
    lives: list[int] = []

    def is_away() -> bool:
        lives.append(answer(port, "/livez")[0])
        return answer(port, "/readyz")[0] == HTTPStatus.SERVICE_UNAVAILABLE

    database_server.freeze()
    try:
        until(is_away, "the agent not to be ready")
        lives.append(answer(port, "/livez")[0])
    finally:
        database_server.thaw()

    assert set(lives) == {HTTPStatus.OK}
    until(lambda: answer(port, "/readyz")[0] == HTTPStatus.OK, "the agent to be ready again")


@pytest.mark.proof
def test_a_blocked_event_loop_is_dead_after_a_minute(
    embedded: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """The page answers all the time, though the loop does not."""
    (port,) = free_ports(1)
    (embedded.folder / "slow.py").write_text(BLOCKS)
    settings(embedded, '[types.slow]\nhandler = "slow:work"\n')
    line = {"id": "t0", "type": "slow", "input": {"text": "x"}}
    embedded.llm("--latency", "0")
    embedded.producer("load", str(embedded.write_lines([line])))
    agent = embedded.agent("--until-done", DOCLLM_AGENT_HTTP=f"127.0.0.1:{port}")

    until(lambda: "has been blocked" in agent.err, "the log to name the task")
    assert answer(port, "/livez")[0] == HTTPStatus.OK
    until(lambda: answer(port, "/livez")[0] == HTTPStatus.SERVICE_UNAVAILABLE, "the page to say so")
    until(lambda: answer(port, "/livez")[0] in {0, HTTPStatus.OK}, "the loop to run again")

    assert agent.wait() == 0, agent.tail()
