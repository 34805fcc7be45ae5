"""An agent whose servers are all gone waits quietly and cheaply, and recovers by itself."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import pytest

from docllm.schemas.task.states import Status
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program, pause
from tests.servers import DatabaseServer, Kafka, Redis, Server

SETTLE_S, MEASURED_S = 15.0, 60.0
# Measured: 1.5 % of a core and 4 lines a minute. If each thread and each handle retried at once, it
# was 30 % and 95 lines.
CORE_SHARE, LINES, GROWN_MB = 0.06, 12, 60


@pytest.mark.proof
def test_all_servers_gone(
    on_kafka: Deployment, kafka_server: Kafka, database_server: DatabaseServer, redis_server: Redis
) -> None:
    """Without all servers an agent uses almost no CPU and logs a few lines a minute.

    The servers are Kafka, ledger, Redis and provider. The log has the begin and the end of each
    outage.
    """
    llm = on_kafka.llm("--latency", "0.2")
    on_kafka.load(1500)
    agent = on_kafka.agent("--slots", "16", "--until-done")
    on_kafka.until_settled(100)
    before_mb = _resident_mb(agent)

    servers: list[Server] = [kafka_server, database_server, redis_server]
    for server in servers:
        server.kill()
    llm.end()
    try:
        pause(SETTLE_S)
        share, lines = _measured(agent)
        grown_mb = _resident_mb(agent) - before_mb
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.start(), servers))
    began_s, settled = monotonic(), on_kafka.ledger.counts()["succeeded"]
    on_kafka.llm("--latency", "0.2", "--port", str(urlsplit(llm.url).port))
    on_kafka.until_settled(settled + 1)
    resumed_s = monotonic() - began_s

    print(  # noqa: T201
        f"{share:.1%} of a core, {len(lines)} lines a minute, {grown_mb} MB more; resumed "
        f"after {resumed_s:.0f} s"
    )
    assert share <= CORE_SHARE
    assert len(lines) <= LINES, "\n".join(lines)
    assert grown_mb <= GROWN_MB
    assert agent.wait() == 0, agent.tail()
    assert {task.status for task in on_kafka.evidence().tasks} == {Status.SUCCEEDED}
    for name in ("the database", "Kafka at", "Redis"):
        printed = [
            line
            for line in agent.err.splitlines()
            if f"docllm.schemas.runtime.outage: {name}" in line
        ]
        assert sum("does not answer" in line for line in printed) == 1, agent.err
        assert sum("answers again" in line for line in printed) == 1, agent.err


def _measured(agent: Program) -> tuple[float, list[str]]:
    """Return the share of a core that the agent uses, and the lines that it logs meanwhile."""
    cpu_s, before, began_s = _cpu_s(agent), len(agent.err.splitlines()), monotonic()
    pause(MEASURED_S)
    return (_cpu_s(agent) - cpu_s) / (monotonic() - began_s), agent.err.splitlines()[before:]


def _cpu_s(program: Program) -> float:
    """Return the CPU time of a process and all its threads, including ended ones."""
    fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(program: Program) -> int:
    return (
        int(Path(f"/proc/{program.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        >> 20
    )
