"""An agent's health and metrics over HTTP, on both sets of parts."""

import signal
import socket
from collections import Counter
from functools import partial
from http import HTTPStatus
from urllib.error import URLError

import orjson

from tests.integration.monitoring.test_exporter import page, samples
from tests.integration.support.deployment import Deployment
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program, until
from tests.servers.process import free_port, free_ports

TASKS = 40


def answer(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page; 0 while nobody listens."""
    try:
        return page(f"http://127.0.0.1:{port}{path}")
    except (URLError, ConnectionError):
        return 0, ""


@repeated_on_embedded
def test_two_agents_of_one_parent_measure_all_calls(deployment: Deployment) -> None:
    """Each has a port of its own, and together they count what the provider has answered."""
    ports, group = free_ports(2), deployment.group
    llm = deployment.llm("--latency", "0")
    deployment.load(TASKS)
    agent = deployment.agent("--processes", "2", DOCLLM_AGENT_HTTP=f"127.0.0.1:{ports[0]}")
    for port in ports:
        until(partial(_is_ready, agent, port), "agents to be ready")
    deployment.until_settled(TASKS)

    def measured() -> list[Counter[tuple[str, ...]]]:
        return [samples(answer(port, "/metrics")[1]) for port in ports]

    def settled() -> float:
        return sum(one["docllm_settle_group_size_sum", group] for one in measured())

    until(lambda: settled() >= TASKS, "the agents to note what the ledger has")  # just after it
    found = measured()

    calls = sum(one["docllm_call_duration_seconds_count", group, "default"] for one in found)
    assert calls == len(llm.calls()) == TASKS
    assert sum(one["docllm_settle_group_size_sum", group] for one in found) == TASKS
    assert sum(one["docllm_task_wait_seconds_count", group] for one in found) > 0
    assert all(one["process_resident_memory_bytes", group] > 0 for one in found)
    assert all(len(one) < 300 for one in found)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0


def test_an_agent_that_drains_is_alive_and_not_ready(embedded: Deployment) -> None:
    """A call that is paid for ends; nobody may kill the agent meanwhile."""
    port = free_port()
    embedded.llm("--latency", "3")
    embedded.load(1)
    agent = embedded.agent(DOCLLM_AGENT_HTTP=f"127.0.0.1:{port}")
    embedded.until(lambda: embedded.ledger.counts()["processing"], "the call to begin")
    agent.signal(signal.SIGTERM)

    until(lambda: "drains" in str(_ready(port)), "the agent to say that it drains")

    assert answer(port, "/livez")[0] == HTTPStatus.OK
    assert agent.wait() == 0
    assert embedded.ledger.counts()["succeeded"] == 1


def _is_ready(agent: Program, port: int) -> bool:
    assert agent.running, agent.tail()
    return answer(port, "/readyz")[0] == HTTPStatus.OK


def _ready(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def test_an_address_that_cannot_be_used_ends_the_agent(embedded: Deployment) -> None:
    """An agent that nobody can watch does not start in silence."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = embedded.run(
            "agent",
            "--group",
            embedded.group,
            "--rehearsal",
            "--until-done",
            DOCLLM_AGENT_HTTP=f"127.0.0.1:{port}",
        )
    assert done.code == 2
    assert f"127.0.0.1:{port} cannot be listened on" in done.err


def test_the_log_of_all_agents_can_be_json(embedded: Deployment) -> None:
    """Every line is an object, also that of an agent that cannot start."""
    embedded.load(5)
    done = embedded.run(
        *("agent", "--group", embedded.group, "--rehearsal", "--until-done"),
        *("--processes", "2"),
        DOCLLM_LOG_FORMAT="json",
    )
    lines = [orjson.loads(line) for line in done.err.splitlines()]
    assert done.code == 0
    assert {line.get("process") for line in lines} >= {1, None}
    assert {line["group"] for line in lines} == {embedded.group}
    assert all(line["agent"] and line["ts"].endswith("Z") for line in lines)
    assert any("5 succeeded" in line["msg"] for line in lines)

    refused = embedded.run("agent", DOCLLM_LOG_FORMAT="json", DOCLLM_LLM_BASE_URL="")
    (line,) = [orjson.loads(line) for line in refused.err.splitlines()]
    assert refused.code == 2
    assert (line["level"], line["code"]) == ("ERROR", "settings_wrong")


def test_the_log_of_an_exporter_can_be_json(embedded: Deployment) -> None:
    """Its first line, and the last one of an exporter that cannot start."""
    words = ("producer", "exporter", "--group", embedded.group, "--listen")
    refused = embedded.run(*words, "0.0.0.0:0", DOCLLM_LOG_FORMAT="json")
    exporter = embedded.start(*words, "127.0.0.1:0", DOCLLM_LOG_FORMAT="json")
    until(lambda: exporter.err.endswith("\n") or not exporter.running, "the exporter to listen")

    line, first = orjson.loads(refused.err), orjson.loads(exporter.err)
    assert (refused.code, line["code"], line["group"]) == (2, "settings_wrong", embedded.group)
    assert (first["level"], "/metrics" in first["msg"]) == ("INFO", True)
